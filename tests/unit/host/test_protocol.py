"""Lines of a host are events, with all that the engine needs, or they are refused."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.host.protocol import read_event
from pytest_osmosis.host.slots import size_of
from pytest_osmosis.models.base import ChatRequest

RUN = {"row": 0, "run": 0, "attempt": 1}
START = {"ev": "start", **RUN, "at": "2026-01-01T00:00:00Z"}
SCORE = {"ev": "score", **RUN, "ms": 1, "scores": {"f": 1}, "errors": {}, "output": {}}
DENIED = {"ev": "denied", "model_tag": "judge", "error": "401"}


@pytest.mark.parametrize(
    "event",
    [START, {**START, "model_tag": "baseline", "later": 1}, SCORE, {**SCORE, "removed": True, "name": "f"}, DENIED],
)
def test_events_are_read(event: dict[str, object]) -> None:
    assert read_event(json.dumps(event).encode()) == event


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        *((None, "not an event"), (5, "not an event"), ("x", "not an event"), ([], "not an event")),
        *(({"ev": "stop"}, "not an event"), ({"ev": "began"}, "not an event")),
        *(({}, "lacks ev"), ({"ev": None}, "lacks ev"), ({"ev": ["start"]}, "lacks ev")),
        *(({name: value for name, value in SCORE.items() if name != gone}, f"lacks {gone}") for gone in SCORE),
        ({**START, "row": "0"}, "row: must be an integer, got '0'"),
        ({**START, "attempt": None}, "attempt: must be an integer, got None"),
        ({**SCORE, "scores": []}, r"scores: must be an object, got \[\]"),
        ({**SCORE, "scores": {"f": 10**400}}, r"scores.f: must be a smaller number"),
        ({**SCORE, "removed": True}, "lacks name"),
        ({**SCORE, "errors": {"f": {"message": "x"}}}, "errors.f: lacks details"),
        ({"ev": "broken", **RUN, "boundary": "\ud800", "error": "x"}, "boundary: cannot be"),
        *(({**START, "model_tag": tag}, "model_tag: ") for tag in ("third", "judge", None, 5, ["primary"])),
    ],
)
def test_other_lines_are_refused(event: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_event(json.dumps(event).encode())


@pytest.mark.parametrize("kind", ["ready", "rollout", "score", "broken", "ask", "stalled"])
def test_every_event_of_a_host_is_known(kind: str) -> None:
    with pytest.raises(ValueError, match=r"^lacks "):
        read_event(json.dumps({"ev": kind}).encode())


def test_a_bound_on_an_answer_that_is_no_number_is_no_part_of_the_size() -> None:
    size = size_of(ChatRequest([], sampling={"max_tokens": True, "max_completion_tokens": 7.5}))

    event = {"ev": "ask", "row": 0, "run": 0, "attempt": 1, "id": 1, **size._asdict()}
    assert read_event(json.dumps(event).encode()) == event
