"""The question if an eval was measured: if not, neither "passed" nor "failed" would be true."""

from __future__ import annotations

from collections.abc import Collection

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stop import StopReason
from pytest_osmosis.results.results import Results
from pytest_osmosis.verdicts.gates import UNDECIDED

SYSTEMIC: tuple[StopReason, ...] = ("systemic", "journal")
"""Reasons to stop that every further run would meet."""
LIMITS: tuple[StopReason, ...] = ("max_errors", "max_tokens", "max_cost_usd", "max_duration_s")
"""Reasons to stop that `[limits]` sets."""
CUT_SHORT: tuple[StopReason, ...] = (*LIMITS, "requested")
"""Reasons to stop after which only gates that are decided already have a verdict."""


def is_not_measured(
    results: Results,
    stopped_by: StopReason | None,
    *,
    gated: bool,
    measured: bool,
    elsewhere: Collection[RunId] = frozenset(),
) -> bool:
    """Return True if an eval has no verdict: nothing was `measured`, runs are missing, or a gate was not measured.

    `--maxfail` has an exit status of its own. `gated` is True if gates decide. The runs `elsewhere` may be missing.
    """
    if stopped_by == "maxfail":
        return False
    lacks = any(each.status == "pending" and each.run not in elsewhere for each in results.records)
    return (
        not measured
        or stopped_by in (*SYSTEMIC, "max_errors")
        or ((lacks or stopped_by in CUT_SHORT) and not all_gates_decided(results, gated))
        or (gated and any(verdict.state == "not measured" for verdict in results.verdicts))
    )


def any_answer(results: Results) -> bool:
    """Return True if a run counts as an answer; the baseline's runs count only if nothing else was selected."""
    if results.records or results.baseline is None:
        return results.measured > 0
    return any(map(results.pass_rule.measured, results.baseline.records))


def all_gates_decided(results: Results, gated: bool) -> bool:
    """Return True if gates of the config decide, and the runs that are missing cannot change their verdicts."""
    states = {verdict.state for verdict in results.verdicts if verdict.rule is not None}
    deciding = states - UNDECIDED
    return gated and bool(deciding) and "not measured" not in deciding
