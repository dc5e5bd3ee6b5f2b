"""The throttle: the number of runs in flight after servers refused requests."""

from __future__ import annotations

from pytest_osmosis.engine.limits import Throttle


def test_each_pause_halves_the_runs_in_flight_down_to_one() -> None:
    throttle = Throttle(8)
    ceilings = []
    for now in range(5):
        throttle.refused(float(now), 0.5)
        ceilings.append(throttle.ceiling)
    assert ceilings == [4, 2, 1, 1, 1]
    assert (throttle.pauses, throttle.paused_s, throttle.least) == (5, 2.5, 1)


def test_refusals_during_a_pause_only_make_it_longer() -> None:
    throttle = Throttle(8)
    throttle.refused(0.0, 1.0)
    throttle.refused(0.5, 1.0)
    assert (throttle.ceiling, throttle.pauses, throttle.paused_s) == (4, 1, 1.5)


def test_finished_runs_raise_the_ceiling_up_to_the_limit() -> None:
    throttle = Throttle(8)
    throttle.refused(0.0, 1.0)
    seen = []
    for _ in range(40):
        throttle.finished()
        seen.append(throttle.ceiling)
    assert seen[3] == 5
    assert seen == sorted(seen)
    assert seen[-1] == 8
