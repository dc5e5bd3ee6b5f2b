"""Systemic failures: those that every further run would meet stop the eval."""

from __future__ import annotations

import pytest

from pytest_osmosis.engine.budget import Systemic
from pytest_osmosis.formats.events import RolloutEvent
from pytest_osmosis.formats.words import Boundary

SUCCESS: RolloutEvent = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "messages": [], "n_prompt": 0}


def failed(error: str, boundary: Boundary = "provider", systemic: str = "no", row: int = 0) -> RolloutEvent:
    return {**SUCCESS, "boundary": boundary, "error": error, "systemic": systemic, "row": row}


def test_an_always_systemic_error_stops_the_eval_even_after_a_success() -> None:
    systemic = Systemic(1)
    assert systemic.saw(SUCCESS) is None
    assert systemic.saw(failed("401", systemic="always")) == "401"


def test_an_error_that_is_systemic_until_success_stops_the_eval_only_before_a_success() -> None:
    assert Systemic(1).saw(failed("404", systemic="until_success")) == "404"
    later = Systemic(1)
    later.saw(SUCCESS)
    assert later.saw(failed("404", systemic="until_success")) is None


@pytest.mark.parametrize(("batch_size", "same"), [(1, 10), (10, 10), (64, 64)])
def test_the_same_error_in_the_first_runs_stops_the_eval(batch_size: int, same: int) -> None:
    systemic = Systemic(batch_size)
    causes = [systemic.saw(failed(f"broken at 0x{n:08x} after {n} s", "agent")) for n in range(same)]
    assert causes[:-1] == [None] * (same - 1)
    assert (
        causes[-1]
        == f"the first {same} runs all failed the same way: agent: broken at 0x{same - 1:08x} after {same - 1} s"
    )


def test_a_success_another_error_or_a_refusal_among_the_first_runs_does_not_stop_the_eval() -> None:
    broken = failed("broken", "agent")
    healthy, mixed, boundaries, refusals = (Systemic(1) for _ in range(4))
    healthy.saw(SUCCESS)
    assert [healthy.saw(broken) for _ in range(30)] == [None] * 30
    assert [mixed.saw(failed(f"broken {'ab'[n % 2]}")) for n in range(30)] == [None] * 30
    assert [boundaries.saw(failed("broken", ("agent", "model")[n % 2])) for n in range(30)] == [None] * 30
    assert [refusals.saw(failed("I cannot", "model", systemic="never")) for _ in range(30)] == [None] * 30


def test_an_error_that_the_probe_met_too_stops_the_eval_at_once() -> None:
    systemic = Systemic(1, probe_error="400: No connected db. (request 8a7f00e1)")
    met, other = failed("400: No connected db. (request 77be41aa)", "model"), failed("400: too long", "model")
    assert (systemic.is_of_probe(other), systemic.saw(other)) == (False, None)
    assert systemic.is_of_probe(met)
    assert systemic.saw(met) == f"the test request (probe) and a run failed the same way: {met['error']}"


def test_an_error_of_the_probe_is_forgotten_once_a_run_succeeds() -> None:
    systemic = Systemic(1, probe_error="400: no")
    systemic.saw(SUCCESS)
    assert not systemic.is_of_probe(failed("400: no", "model"))
    assert systemic.saw(failed("400: no", "model")) is None
    assert not Systemic(1, probe_error="400: no").is_of_probe(failed("400: no", "agent"))


@pytest.mark.parametrize(
    ("rollouts", "cause"),
    [
        ([failed("400: a1", "model", row=row) for row in range(3)], "all 3 runs failed the same way: model: 400: a1"),
        ([failed(f"400: id-{row}000000", "model", row=row) for row in (0, 1)], "all 2 runs failed the same way"),
        ([failed("503", row=row) for row in range(3)], "all 3 runs failed the same way: provider: 503"),
        ([failed("400", "model"), failed("400", "model")], None),  # of one row
        ([failed("400", "model", row=0), failed("too long", "model", row=1)], None),
        ([failed("400", "model", row=0), failed("400", "provider", row=1)], None),
        ([failed("broken", "agent", row=row) for row in range(3)], None),
        ([failed("no", "model", systemic="never", row=row) for row in range(3)], None),
        ([failed("400", "model", row=0), failed("400", "model", row=1), SUCCESS], None),
        ([], None),
    ],
)
def test_an_error_of_requests_that_all_runs_met_is_systemic(rollouts: list[RolloutEvent], cause: str | None) -> None:
    systemic = Systemic(1)
    assert [systemic.saw(rollout) for rollout in rollouts] == [None] * len(rollouts)
    assert (systemic.met_by_all() or "").startswith(cause or "")
    assert (systemic.met_by_all() is None) == (cause is None)
