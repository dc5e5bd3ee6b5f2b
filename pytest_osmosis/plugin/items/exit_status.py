"""Exit status 9: an eval was not measured, so that neither 0 nor 1 would be true."""

from __future__ import annotations

import pytest

from pytest_osmosis.evals import FinishedEval
from pytest_osmosis.record.run_record import INFRASTRUCTURE
from pytest_osmosis.results.measured import is_not_measured
from pytest_osmosis.results.results import Results

STRONGER = (2, 3, 4)
"""Exit statuses that "not measured" never replaces: interrupted, internal error, usage error."""


def set_not_measured(session: pytest.Session, status: int) -> None:
    """Set the exit status for "not measured", unless a stronger one is set."""
    if session.exitstatus not in STRONGER:
        session.exitstatus = status


def not_measured(finished: FinishedEval, *, gated: bool, measured: bool) -> bool:
    """Return True if an eval has no verdict. `gated` is True if gates decide, `measured` if there is any answer.

    A replay that asks something else than was recorded has failed: the code is at fault, and no outage.
    """
    if finished.results.n_unrecorded:
        return False
    stopped = finished.run.engine.stopped
    reason = None if stopped is None else stopped.reason
    return is_not_measured(
        finished.results, reason, gated=gated, measured=measured, elsewhere=finished.run.selected.unstored
    )


def any_rollout(results: Results) -> bool:
    """Return True if a test got a rollout to look at, or a failure that is the model's or the agent's."""
    return any(record.rolled and record.boundary not in INFRASTRUCTURE for record in results.records)
