"""Servers that refuse requests: when all hosts pause, and how many runs are in flight afterwards."""

from __future__ import annotations

import random

from pytest_osmosis.engine.throttle import Throttle
from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.overload import OVERLOADED, OverloadDetector


def refusal(status: int = 429) -> ModelError:
    return ModelError("no room", status=status, retryable=True)


def test_refusals_in_a_row_mean_that_the_server_has_no_room() -> None:
    detector = OverloadDetector()
    assert [detector.overloaded(refusal()) for _ in range(OVERLOADED)] == [False] * (OVERLOADED - 1) + [True]
    assert not detector.overloaded(refusal()), "what was sent before is counted anew"


def test_other_failures_do_not_count_as_refusals() -> None:
    detector = OverloadDetector()
    assert not any(detector.overloaded(error) for error in [refusal(500), refusal(408), None] * 20)
    assert any(detector.overloaded(refusal(503)) for _ in range(OVERLOADED))


def test_a_few_refusals_among_answers_cause_no_pause() -> None:
    chance, detector = random.Random(4), OverloadDetector()
    answers = [refusal() if chance.random() < 0.05 else None for _ in range(1000)]
    assert not any(detector.overloaded(answer) for answer in answers)


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
