"""Systemic failures: those that every further run would meet stop the eval."""

from __future__ import annotations

import pytest

from pytest_osmosis.engine.systemic import Systemic
from pytest_osmosis.record.events import RolloutEvent

SUCCESS: RolloutEvent = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "messages": [], "n_prompt": 0}


def failed(error: str, boundary: str = "provider", systemic: str = "no") -> RolloutEvent:
    return {**SUCCESS, "boundary": boundary, "error": error, "systemic": systemic}


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


def test_a_success_or_another_error_among_the_first_runs_does_not_stop_the_eval() -> None:
    broken = failed("broken", "agent")
    healthy, mixed, boundaries = Systemic(1), Systemic(1), Systemic(1)
    healthy.saw(SUCCESS)
    assert [healthy.saw(broken) for _ in range(30)] == [None] * 30
    assert [mixed.saw(failed(f"broken {'ab'[n % 2]}")) for n in range(30)] == [None] * 30
    assert [boundaries.saw(failed("broken", ("agent", "model")[n % 2])) for n in range(30)] == [None] * 30
