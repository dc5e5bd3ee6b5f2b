"""Files of `prime eval` as an eval run, for `pytest-osmosis show`: each line is a run, with the reward that it has."""

from __future__ import annotations

import atexit
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.verifiers.hosted import BOUNDARIES, PASS_THRESHOLD
from pytest_osmosis.addons.verifiers.prime_files import REWARD, eval_run_of
from pytest_osmosis.addons.verifiers.prime_import import (
    Event,
    Line,
    PrimeRun,
    has_failed,
    number,
    read_prime_run,
    rollout_of,
    score_of,
)
from pytest_osmosis.files import private
from pytest_osmosis.record.find_run import home_above, is_run
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.manifest import MANIFEST_VERSION
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import plural


def run_of_files(folder: Path) -> RunDirectory:
    """Return the eval run that files are from; those of verifiers become one, in a folder that ends with this process.

    Raises `OsmosisError` if they cannot be read.
    """
    own = home_above(folder) / (eval_run_of(folder) or ".")
    if is_run(own):
        return RunDirectory(own)
    found = read_prime_run(folder)
    home = tempfile.mkdtemp(prefix="pytest-osmosis-show-")
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    directory = RunDirectory(Path(home) / folder.name)
    private.make_folder(directory.path)
    lines = list(_numbered(found))
    times = _times(found)
    private.write(directory.manifest, [json.dumps(_manifest(found, lines, times[0]))])
    private.write(directory.journal, (encode(event).decode() for event in _events(found, lines, times)))
    return directory


def _times(found: PrimeRun) -> tuple[str, str]:
    """Return when the first rollout began, and when the last line was written."""
    ended = (found.folder / found.name).stat().st_mtime
    timings = [line.get("timing") or {} for line in found.lines]
    begun = [number(timing.get("start", timing.get("start_time")), 0, ended) for timing in timings]
    first = min((moment for moment in begun if moment), default=ended)
    begin, end = (datetime.fromtimestamp(each, UTC).isoformat(timespec="milliseconds") for each in (first, ended))
    return begin, end


def _numbered(found: PrimeRun) -> Iterator[tuple[RunId, Line]]:
    """Yield the lines with their runs. The row of an example is its number, or else its place among the examples."""
    examples = list(dict.fromkeys(json.dumps(line["example_id"]) for line in found.lines))
    are_numbers = all(each.isdecimal() for each in examples)
    n_runs = Counter[int]()
    for line in found.lines:
        example = json.dumps(line["example_id"])
        row = int(example) if are_numbers else examples.index(example)
        yield RunId(row, n_runs[row]), line
        n_runs[row] += 1


def _manifest(found: PrimeRun, lines: list[tuple[RunId, Line]], started_at: str) -> dict[str, Any]:
    metadata, path, folder = found.metadata, shown(found.folder), str(found.folder.absolute())
    n, rows = max((run.index + 1 for run, _ in lines), default=1), sorted({run.row for run, _ in lines})
    selection = f"{plural(len(rows), 'example')} in {found.name}"
    described = {"path": path, "dataset": found.name, "selection": selection}
    plan = {
        "name": found.folder.name,
        "path": folder,
        "dataset": folder,
        "n": n,
        "spans": [[row, 1, 1] for row in rows],
    }
    return {
        "schema_version": MANIFEST_VERSION,
        **dict.fromkeys(("entry", "config_text", "baseline", "shard", "cassette")),
        **{name: {} for name in ("inputs", "columns", "timeouts", "versions", "target")},
        "eval": metadata["env_id"],
        "started_at": started_at,
        "folder": folder,
        "workspace": folder,
        "imported": {"folder": path, "is_all": True},
        "typed": [],
        "plan": {**plan, "selection": selection},
        "subject": {
            "model": metadata["model"],
            "n": n,
            "extra": {**described, "batch_size": 1, "sampling": {}, "overridden": []},
        },
        "pass_rule": {
            "pass_threshold": metadata.get("pass_threshold") or PASS_THRESHOLD,
            "thresholds": {},
            "decide": "all",
        },
        "gates": [],
        "prices": {"primary": None},
        "smoke": False,
        "input_salt": "00",
        "dataset_sha256": "",
        "plan_digest": "",
    }


def _events(found: PrimeRun, lines: list[tuple[RunId, Line]], times: tuple[str, str]) -> Iterator[Event]:
    rows = sorted({run.row for run, _ in lines})
    yield {"ev": "began", "at": times[0], "pid": 0, "machine": "", "resumed": False}
    yield {"ev": "loaded", "scorers": [REWARD], "digests": {}}
    yield {
        "ev": "rows",
        "rows": {str(row): ["", ""] for row in rows},
        "digests": {str(row): "" for row in rows},
    }
    for run, line in lines:
        rollout = rollout_of(found, run, line, is_environment=True)
        if has_failed(line):
            yield {**rollout, **_failure(line)}
        else:
            yield from (rollout, score_of(run, line))
    yield {"ev": "ended", "at": times[1], "status": "finished", "reason": None}


def _failure(line: Line) -> dict[str, str]:
    error = line.get("error") or {"error": "it has no reward", "error_chain_str": "RewardError"}
    told = error if isinstance(error, dict) else {"error": str(error)}
    chain = str(told.get("error_chain_str", "")).split(" -> ")
    boundary = next((boundary for name, boundary in BOUNDARIES.items() if name in chain), "agent")
    return {"boundary": boundary, "error": str(told.get("error_chain_repr") or told.get("error"))}
