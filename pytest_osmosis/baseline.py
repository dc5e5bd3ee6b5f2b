"""Earlier results as a baseline: a results.json that is committed to a repository, read and checked.

Only whole results are a baseline: all that was planned ran. Where an eval ran side by side with a model, its own runs
are what is read, not that model's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_osmosis.comparison import RowRuns
from pytest_osmosis.config.workspace import shown
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.history import is_measured
from pytest_osmosis.results import SCHEMA_VERSION

COMPARED = {
    "name": "the eval",
    "model": "the model",
    "n_runs": "runs per row",
    "eval_fns": "the functions that score",
    "thresholds": "the thresholds",
    "decide": "what decides",
    "sampling": "the sampling",
}
"""Keys of the published `config` that make two results differ, and how they are called."""


@dataclass(frozen=True, slots=True)
class StoredResults:
    """What a results file says. `config` is its published `config`, `started_at` UTC, ISO 8601."""

    path: Path
    started_at: str
    config: Mapping[str, Any]
    pass_rate: float | None
    n_runs: int
    rows: Sequence[RowRuns]

    def differs(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """The settings that are others in `config`, in words: "the model: openai/gpt-5, here openai/gpt-5-mini"."""
        here = json.loads(json.dumps({key: config[key] for key in COMPARED}))
        pairs = ((what, self.config[key], here[key]) for key, what in COMPARED.items())
        return tuple(f"{what}: {_said(old)}, here {_said(new)}" for what, old, new in pairs if old != new)


def read_results(path: Path, where: str) -> StoredResults:
    """The results in a file, `where` being named where they are none. Raises `ConfigError`."""

    def refuse(text: str, fix: str) -> ConfigError:
        return ConfigError([Problem(where, f"[baseline] results: {shown(path)} {text}; {fix}")])

    another = "name a results.json of a whole run, or have one written with --osmosis-update-baseline"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise refuse("does not exist", "--osmosis-update-baseline writes it from this eval's results") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}", another) from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"is not JSON: {error}", another) from None
    if not isinstance(results, dict) or "schema_version" not in results:
        raise refuse("holds no results of pytest-osmosis: it has no schema_version", another)
    if results["schema_version"] != SCHEMA_VERSION:
        found = f"is of schema_version {results['schema_version']}, this pytest-osmosis reads {SCHEMA_VERSION}"
        raise refuse(found, "delete it and have it written anew with --osmosis-update-baseline")
    try:
        unfit = _unfit(results)
        if unfit is None:
            return _stored(path, results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        unfit = f"is not valid against its schema (python -m pytest_osmosis schema): {type(error).__name__}: {error}"
    raise refuse(unfit, another)


def _unfit(results: Mapping[str, Any]) -> str | None:
    """Why these results are no baseline, None where they are one."""
    if results["partial"]:
        return "holds a part of its eval only"
    if results["status"] != "finished":
        return f"is of an eval that was stopped ({results.get('stop_reason')})"
    if results["pending"]:
        return f"is of an eval of which {len(results['pending'])} runs never ran"
    return None if results["summary"]["measured"] else "is of an eval of which no run was measured"


def _stored(path: Path, results: Mapping[str, Any]) -> StoredResults:
    return StoredResults(
        path=path,
        started_at=str(results["provenance"]["started_at"]),
        config={key: results["config"][key] for key in COMPARED},
        pass_rate=results["summary"]["pass_rate"],
        n_runs=int(results["summary"]["selected"]),
        rows=list(_rows(results["rows"])),
    )


def _rows(rows: Sequence[Mapping[str, Any]]) -> Iterator[RowRuns]:
    for row in rows:
        own = [run for run in row["runs"] if run.get("model_tag") != "baseline" and run["status"] != "skipped"]
        runs = [bool(run["passed"]) if is_measured(run) else None for run in own]
        yield RowRuns(int(row["row_index"]), str(row["row_digest"]), runs)


def _said(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
