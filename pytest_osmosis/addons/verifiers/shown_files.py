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

from pytest_osmosis.addons.verifiers.hosted import PASS_THRESHOLD
from pytest_osmosis.addons.verifiers.prime_files import eval_run_of
from pytest_osmosis.addons.verifiers.prime_import import Line, PrimeRun, events_of, number, read_prime_run
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
    begin, end = _times(found)
    rows = sorted({run.row for run, _ in lines})
    private.write(directory.manifest, [json.dumps(_manifest(found, lines, rows, begin))])
    unknown = dict.fromkeys(rows, "")
    events = (
        {"ev": "began", "at": begin, "pid": 0, "machine": "", "resumed": False},
        *events_of(found, lines, dict.fromkeys(rows, ("", "")), unknown, is_environment=True),
        {"ev": "ended", "at": end, "status": "finished", "reason": None},
    )
    private.write(directory.journal, (encode(event).decode() for event in events))
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


def _manifest(found: PrimeRun, lines: list[tuple[RunId, Line]], rows: list[int], started_at: str) -> dict[str, Any]:
    metadata, path, folder = found.metadata, shown(found.folder), str(found.folder.absolute())
    n = max((run.index + 1 for run, _ in lines), default=1)
    selection = f"{plural(len(rows), 'example')} in {found.name}"
    extra = {"path": path, "dataset": found.name, "selection": selection, "batch_size": 1}
    plan = {"name": found.folder.name, "path": folder, "dataset": folder, "n": n, "selection": selection}
    threshold = metadata.get("pass_threshold") or PASS_THRESHOLD
    return {
        "schema_version": MANIFEST_VERSION,
        **dict.fromkeys(("entry", "config_text", "baseline", "shard", "cassette")),
        **{name: {} for name in ("inputs", "columns", "timeouts", "versions", "target")},
        **dict.fromkeys(("dataset_sha256", "plan_digest"), ""),
        **{name: [] for name in ("typed", "gates")},
        **dict.fromkeys(("folder", "workspace"), folder),
        "eval": metadata["env_id"],
        "started_at": started_at,
        "imported": {"folder": path, "is_all": True},
        "plan": {**plan, "spans": [[row, 1, 1] for row in rows]},
        "subject": {"model": metadata["model"], "n": n, "extra": {**extra, "sampling": {}, "overridden": []}},
        "pass_rule": {"pass_threshold": threshold, "thresholds": {}, "decide": "all"},
        "prices": {"primary": None},
        "smoke": False,
        "input_salt": "00",
    }
