"""An eval run as a line of the list: its state, and its numbers as results.json has them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_osmosis.results.read import head_of
from pytest_osmosis.results.run_entry import RunEntry, entry_of
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.viewer.shapes import IntervalShape, RunRow, shaped


def row_of(stored: StoredResults) -> RunRow:
    """Return the line of an eval run that was read.

    Without results of its last session there is no pass rate: that of the runs which ended first would mislead.
    """
    directory, manifest, document = stored.run.directory, stored.run.manifest, stored.document
    provenance = {"plan_digest": manifest.plan_digest, **document["provenance"]}
    head = head_of(directory.results, {**document, "provenance": provenance})
    entry = entry_of(directory, manifest, stored.lifecycle, head)
    if stored.is_from_journal:
        n_selected = manifest.selected.n_rollouts
        entry = replace(_without_rate(entry), partial=False, ended=len(stored.records), selected=n_selected)
        entry = replace(entry, **manifest.git) if manifest.git is not None else entry
    return run_row(entry)


def run_row(entry: RunEntry) -> RunRow:
    """Return an eval run of a list as the front end reads it.

    It has no pass rate if it is a part: runs are missing that could change it, so it would mislead.
    """
    ended, selected = entry.ended, entry.selected
    is_cut = entry.status != "finished" and ended is not None and selected is not None and ended < selected
    if entry.partial or is_cut:
        entry = _without_rate(entry)
    return shaped(
        RunRow,
        entry,
        duration_ms=None if entry.duration_s is None else round(entry.duration_s * 1000, 3),
        pass_rate_interval=_interval(entry.pass_rate_interval),
        cost_unknown=entry.n_cost_unknown,
    )


def _without_rate(entry: RunEntry) -> RunEntry:
    return replace(entry, pass_rate=None, pass_rate_interval=None)


def _interval(data: Mapping[str, Any] | None) -> IntervalShape | None:
    """Return a published interval, None for one that is not whole: results may have been damaged."""
    try:
        return (
            None
            if data is None
            else IntervalShape(
                low=float(data["low"]), high=float(data["high"]), method=str(data["method"]), level=float(data["level"])
            )
        )
    except (KeyError, TypeError, ValueError):
        return None
