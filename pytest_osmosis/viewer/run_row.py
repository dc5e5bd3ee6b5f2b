"""An eval run as a line of the list: its state, and its numbers as results.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.viewer.shapes import RunRow


def row_of(stored: StoredResults) -> RunRow:
    """Return the line of an eval run that was read.

    Without results of its last session there is no pass rate: that of the runs which ended first would mislead.
    """
    results, row = stored.results, _begun_row(stored.run)
    row["status"], row["reason"] = stored.status, stored.lifecycle.reason
    row["ended"], row["selected"] = len(stored.records), stored.run.manifest.selected.n_rollouts
    _add_counts(row, results)
    if not stored.is_from_journal:
        _add_published(row, results, stored.document)
    return with_fair_rate(row)


def with_fair_rate(row: RunRow) -> RunRow:
    """Return an entry without the pass rate of a part: runs are missing that could change it, so it would mislead."""
    ended, selected = row["ended"], row["selected"]
    is_cut = row["status"] != "finished" and ended is not None and selected is not None and ended < selected
    return {**row, "pass_rate": None, "pass_rate_interval": None} if row["partial"] or is_cut else row


def _add_counts(row: RunRow, results: Results) -> None:
    row["duration_ms"] = round(results.duration_ms, 3)
    row["measured"] = results.measured
    row["counted"] = results.count("finished") + results.count("failed")
    row["passed"] = results.passed if results.measured else None
    row["tokens"] = results.total_tokens
    row["cost_usd"] = results.cost_usd
    row["cost_unknown"] = results.n_cost_unknown
    row["gates"] = [verdict.state for verdict in results.verdicts]


def _add_published(row: RunRow, results: Results, document: Mapping[str, Any]) -> None:
    """Add what only the results of a whole session tell."""
    summary, provenance = document["summary"], document["provenance"]
    row["eval"] = document["config"]["name"]
    row["started_at"] = provenance["started_at"]
    row["partial"] = results.partial
    row["replayed"] = results.is_replay
    row["pass_rate"] = summary["pass_rate"] if results.measured else None
    row["pass_rate_interval"] = summary["pass_rate_interval"] if results.measured else None
    row["ended"] = summary["selected"] - summary["pending"]
    row["selected"] = summary["selected"]
    row["git_commit"], row["git_dirty"] = provenance.get("git_commit"), provenance.get("git_dirty")


def _begun_row(run: StoredEvalRun) -> RunRow:
    """Return what the manifest says."""
    manifest = run.manifest
    git = manifest.git or {}
    return RunRow(
        name=run.directory.name,
        eval=manifest.eval,
        status="pending",
        reason=None,
        problem=None,
        model=manifest.subject.model,
        dataset=manifest.subject.extra["dataset"],
        rollout=manifest.rollout,
        started_at=manifest.started_at,
        duration_ms=None,
        partial=False,
        replayed=manifest.replays,
        passed=None,
        measured=None,
        counted=None,
        ended=None,
        selected=None,
        pass_rate=None,
        pass_rate_interval=None,
        gates=[],
        tokens=None,
        cost_usd=None,
        cost_unknown=0,
        git_commit=git.get("git_commit"),
        git_dirty=git.get("git_dirty"),
    )
