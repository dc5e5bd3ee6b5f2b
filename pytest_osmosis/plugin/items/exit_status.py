"""Exit status 9: an eval was not measured, so that neither 0 nor 1 would be true."""

from __future__ import annotations

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.record.run_record import INFRASTRUCTURE
from pytest_osmosis.results.results import Results
from pytest_osmosis.verdicts.gates import UNDECIDED

SYSTEMIC = ("systemic", "journal")
"""Reasons to stop that every further run would meet."""
LIMITS = ("max_errors", "max_tokens", "max_cost_usd", "max_duration_s")
"""Reasons to stop that `[limits]` sets."""
CUT_SHORT = (*LIMITS, "requested")
"""Reasons to stop after which only gates that are decided already have a verdict."""
STRONGER = (2, 3, 4)
"""Exit statuses that "not measured" never replaces: interrupted, internal error, usage error."""


def set_not_measured(session: pytest.Session, status: int) -> None:
    """Set the exit status for "not measured", unless a stronger one is set."""
    if session.exitstatus not in STRONGER:
        session.exitstatus = status


def not_measured(finished: FinishedEval, *, gated: bool, measured: bool) -> bool:
    """Return True if an eval has no verdict: nothing was `measured`, it was stopped, or a gate was not measured.

    `--maxfail` has an exit status of its own. `gated` is True if gates decide. A replay that asks something else than
    was recorded has failed: the code is at fault, and no outage.
    """
    if finished.run.unrecorded:
        return False
    stopped = finished.run.engine.stopped
    if stopped is not None and stopped.reason == "maxfail":
        return False
    return (
        not measured
        or (stopped is not None and stopped.reason in (*SYSTEMIC, "max_errors"))
        or (stopped is not None and stopped.reason in CUT_SHORT and not all_gates_decided(finished, gated))
        or (gated and any(verdict.state == "not measured" for verdict in finished.results.verdicts))
    )


def any_answer(results: Results) -> bool:
    """Return True if a run counts as an answer; the baseline's runs count only if nothing else was selected."""
    if results.records or results.baseline is None:
        return results.measured > 0
    return any(map(results.pass_rule.measured, results.baseline.records))


def any_rollout(results: Results) -> bool:
    """Return True if a test got a rollout to look at, or a failure that is the model's or the agent's."""
    return any(record.rolled and record.boundary not in INFRASTRUCTURE for record in results.records)


def all_gates_decided(finished: FinishedEval, gated: bool) -> bool:
    """Return True if gates of the config decide, and the runs that are missing cannot change their verdicts."""
    states = {verdict.state for verdict in finished.results.verdicts if verdict.rule is not None}
    deciding = states - UNDECIDED
    return gated and bool(deciding) and "not measured" not in deciding
