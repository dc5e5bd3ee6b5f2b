"""The baseline of an eval: a second model that gets the same prompts, or an earlier results file.

Only the results of a whole plan can be a baseline. From the results of an eval that itself had a baseline model, only
the runs of its own model are read.
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
from pytest_osmosis.text.numbers import plural
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
"""Keys of the published `config` that must be equal for a fair comparison, with their names in notes."""


@dataclass(frozen=True, slots=True)
class BaselineModel:
    """The second model of an eval: its name as typed, its target, and its price if that is known."""

    name: str
    target: ModelTarget
    price: Price | None = None


def baseline_target(config: EvalConfig, environ: Mapping[str, str], where: str) -> ModelTarget | None:
    """Return the target of `[baseline] model_path`, None without one. Raises `ConfigError` at `where`.

    Timeouts and retries are those of `[model]`. Its client and headers apply only to the same server, because headers
    may hold credentials that no other server may see.
    """
    baseline, model = config.baseline, config.model
    if baseline.model_path is None:
        return None
    table = replace(model, base_url=baseline.base_url, api_key_env=baseline.api_key_env)
    if baseline.base_url is None or baseline.base_url != model.base_url:
        table = replace(table, client="auto", headers={})
    try:
        return resolve(baseline.model_path, table, environ, where=where)
    except ConfigError as error:
        raise ConfigError(Problem(each.where, _for_baseline(each.text)) for each in error.problems) from None


def _for_baseline(text: str) -> str:
    """Return the text of a problem with `[experiment] model_path` or `[model]` as one with `[baseline]`."""
    return text.replace("[experiment] model_path", "[baseline] model_path").replace("[model]", "[baseline]")


@dataclass(frozen=True, slots=True)
class StoredResults:
    """The contents of a results file. `config` is the published one, `started_at` is UTC, ISO 8601."""

    path: Path
    started_at: str
    config: Mapping[str, Any]
    pass_rate: float | None
    n_runs: int
    rows: Sequence[RowRuns]

    def differs(self, config: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the settings that differ from `config`: "the model: openai/gpt-5, here openai/gpt-5-mini"."""
        here = json.loads(json.dumps({key: config[key] for key in COMPARED}))
        pairs = ((name, self.config[key], here[key]) for key, name in COMPARED.items())
        return tuple(f"{name}: {_text(old)}, here {_text(new)}" for name, old, new in pairs if old != new)


def read_results(path: Path, where: str) -> StoredResults:
    """Return the results in a file. Raises `ConfigError` at `where` if they cannot be a baseline."""

    def refuse(text: str, fix: str) -> ConfigError:
        return ConfigError([Problem(where, f"[baseline] results: {shown(path)} {text}; {fix}")])

    another = "name the results.json of a whole eval run, or write one with --osmosis-update-baseline"
    try:
        results = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise refuse("does not exist", "--osmosis-update-baseline writes it from this eval's results") from None
    except OSError as error:
        raise refuse(f"cannot be read: {error.strerror}", another) from None
    except (ValueError, RecursionError) as error:
        raise refuse(f"is not JSON: {error}", another) from None
    if not isinstance(results, dict) or "schema_version" not in results:
        raise refuse("is not a results file of pytest-osmosis: it has no schema_version", another)
    if results["schema_version"] != SCHEMA_VERSION:
        text = f"has schema_version {results['schema_version']}, this pytest-osmosis reads {SCHEMA_VERSION}"
        raise refuse(text, "delete it and write a new one with --osmosis-update-baseline")
    try:
        reason = _why_no_baseline(results)
        if reason is None:
            return _stored(path, results)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        reason = f"is not valid against its schema (python -m pytest_osmosis schema): {type(error).__name__}: {error}"
    raise refuse(reason, another)


def _why_no_baseline(results: Mapping[str, Any]) -> str | None:
    """Return why these results cannot be a baseline, None if they can."""
    if results["partial"]:
        return "holds only part of its eval"
    if results["status"] != "finished":
        return f"comes from an eval that was stopped ({results.get('stop_reason')})"
    if results["pending"]:
        return f"comes from an eval that left out {plural(len(results['pending']), 'run')}"
    return None if results["summary"]["measured"] else "comes from an eval that measured no run"


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


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
