"""What an eval is compared with: a model that is asked the same, or earlier results, read and checked.

Only whole results are a baseline: all that was planned ran. Where an eval ran side by side with a model, its own runs
are what is read, not that model's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_osmosis.config.tables import EvalConfig
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.models.prices import Price
from pytest_osmosis.models.targets import ModelTarget, resolve
from pytest_osmosis.results.publish import SCHEMA_VERSION
from pytest_osmosis.text.paths import shown
from pytest_osmosis.verdicts.comparison import RowRuns
from pytest_osmosis.verdicts.previous_run import is_measured, is_own

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
class BaselineModel:
    """A model that is asked the same: its name as typed, where it is, and its price, None where nobody knows it."""

    name: str
    target: ModelTarget
    price: Price | None = None


def baseline_target(config: EvalConfig, environ: Mapping[str, str], where: str) -> ModelTarget | None:
    """The target of `[baseline] model_path`, None without one. Raises `ConfigError` at `where`.

    It is asked as `[model]` says: as often, and for as long. Client and headers are those of `[model]` only where it is
    the same server, as headers may hold what only that server may know.
    """
    named, own = config.baseline, config.model
    if named.model_path is None:
        return None
    table = replace(own, base_url=named.base_url, api_key_env=named.api_key_env)
    if named.base_url is None or named.base_url != own.base_url:
        table = replace(table, client="auto", headers={})
    try:
        return resolve(named.model_path, table, environ, where=where)
    except ConfigError as error:
        raise ConfigError(Problem(one.where, _of_baseline(one.text)) for one in error.problems) from None


def _of_baseline(text: str) -> str:
    """A problem with `[experiment] model_path` or `[model]`, told of `[baseline]`."""
    return text.replace("[experiment] model_path", "[baseline] model_path").replace("[model]", "[baseline]")


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
        own = [run for run in row["runs"] if is_own(run) and run["status"] != "skipped"]
        runs = [bool(run["passed"]) if is_measured(run) else None for run in own]
        yield RowRuns(int(row["row_index"]), str(row["row_digest"]), runs)


def _said(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
