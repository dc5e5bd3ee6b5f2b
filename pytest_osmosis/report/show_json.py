"""Stored eval runs and their runs as JSON, for other programs: the shape that `pytest-osmosis show --json` prints.

Both pages have the same members. `runs` says more about each run if single ones were named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pytest_osmosis.record.run_history import RunHistory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.answers import ScoredAnswer
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.safe import one_line
from pytest_osmosis.verdicts.pass_rule import PassRule, kind_of, reason_of

SCHEMA_VERSION = 1
_LARGE = ("rows", "pending")
"""Members of results.json that `runs` replaces."""


def page_json(stored: StoredResults, *, only_failed: bool = False) -> dict[str, Any]:
    """Return the eval run with all its runs, or only those that did not pass."""
    rule = stored.results.pass_rule
    records = [record for record in stored.records if not only_failed or _lost(record, rule)]
    return _page(stored, [_run(stored, record, rule) for record in records])


def runs_json(stored: StoredResults, histories: Iterable[RunHistory]) -> dict[str, Any]:
    """Return the eval run with these runs, and all that the journal holds of them."""
    rule = stored.results.pass_rule
    return _page(stored, [{**_run_of(history, rule, stored.costs_usd), **_whole(history)} for history in histories])


def _page(stored: StoredResults, runs: list[dict[str, Any]]) -> dict[str, Any]:
    manifest, directory = stored.run.manifest, stored.run.directory
    extra = manifest.subject.extra
    return {
        "schema_version": SCHEMA_VERSION,
        "eval_run": directory.name,
        "path": str(directory.path),
        "status": stored.status,
        "reason": stored.lifecycle.reason,
        "rescoring": stored.lifecycle.is_being_rescored,
        "eval": manifest.eval,
        "config": extra["path"],
        "model": manifest.subject.model,
        "dataset": extra["dataset"],
        "rollout": manifest.rollout,
        "started_at": manifest.started_at,
        "ended_at": stored.lifecycle.ended_at,
        "planned_runs": manifest.selected.n_rollouts,
        "in_flight": len(stored.begun),
        "results": {key: value for key, value in stored.document.items() if key not in _LARGE},
        "runs": runs,
    }


def _lost(record: RunRecord, rule: PassRule) -> bool:
    return kind_of(record, rule) in ("failed", "error")


def _run(stored: StoredResults, record: RunRecord, rule: PassRule) -> dict[str, Any]:
    rollout, score = stored.rollout(record), stored.score(record)
    history = RunHistory(
        record,
        rule.scorers,
        rollout.get("messages", ()),
        rollout.get("n_prompt", 0),
        ground_truth=score.get("ground_truth"),
    )
    return _run_of(history, rule, stored.costs_usd)


def _run_of(history: RunHistory, rule: PassRule, costs: Mapping[RunId, float]) -> dict[str, Any]:
    record = history.record
    outcome = record.status if record.status == "pending" else kind_of(record, rule)
    answer = ScoredAnswer.of(history.messages, history.n_prompt, history.ground_truth)
    return {
        "run": str(record.run),
        "row_index": record.run.row,
        "run_index": record.run.index,
        "model_tag": str(record.run.model),
        "outcome": outcome,
        "reason": one_line(reason_of(record, rule)),
        "boundary": rule.boundary(record),
        "error": record.error,
        "scores": dict(record.scores),
        "errors": {name: error.message for name, error in record.scorer_errors.items()},
        "answer": answer.text if history.messages else None,
        "ground_truth": history.ground_truth,
        "finish_reason": record.finish_reason,
        "usage": None if record.usage is None else dict(record.usage),
        "cost_usd": costs.get(record.run),
        "duration_ms": record.duration_ms,
        "scoring_ms": record.scoring_ms,
        "retries": record.retries,
        "bound": record.bound,
        "attempt": record.attempt,
        **record.notes.to_json(),
    }


def _whole(history: RunHistory) -> dict[str, Any]:
    record = history.record
    return {
        "messages": list(history.messages),
        "prompt_messages": history.n_prompt,
        "details": history.details,
        "error_details": {name: error.details for name, error in record.scorer_errors.items()},
        "output": [dict(output) for output in history.outputs if output],
    }
