"""When the refusals of a server count as an overload."""

from __future__ import annotations

import random

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.sender import OVERLOADED, OverloadDetector


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
    assert any(detector.overloaded(refusal(498)) for _ in range(OVERLOADED)), "Groq's words for no capacity"


def test_a_few_refusals_among_answers_cause_no_pause() -> None:
    chance, detector = random.Random(4), OverloadDetector()
    answers = [refusal() if chance.random() < 0.05 else None for _ in range(1000)]
    assert not any(detector.overloaded(answer) for answer in answers)
