"""Lines of a host are events, with all that the engine needs, or they are refused."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.host.protocol import _event_fields, read_event

START = {"ev": "start", "row": 0, "run": 0, "attempt": 1, "at": "now"}
SCORE = {"ev": "score", "row": 0, "run": 0, "attempt": 1, "ms": 1, "scores": {}, "errors": {}, "output": {}}


@pytest.mark.parametrize("event", [START, {**START, "model_tag": "baseline"}, SCORE, {**SCORE, "removed": True}])
def test_events_are_read(event: dict[str, object]) -> None:
    assert read_event(json.dumps(event).encode()) == event


@pytest.mark.parametrize(
    "event",
    [
        *(None, 5, "x", [], {}, {"ev": None}, {"ev": ["start"]}, {"ev": "stop"}),
        *({name: value for name, value in START.items() if name != gone} for gone in START),
        *({**START, "row": "0"}, {**START, "attempt": None}, {**SCORE, "scores": []}, {**SCORE, "ms": "1"}),
    ],
)
def test_other_lines_are_refused(event: object) -> None:
    with pytest.raises(ValueError, match="not an event"):
        read_event(json.dumps(event).encode())


@pytest.mark.parametrize("tag", ["third", None, 5, ["primary"]])
def test_a_model_that_no_eval_has_is_refused(tag: object) -> None:
    with pytest.raises(ValueError, match="ModelTag"):
        read_event(json.dumps({**START, "model_tag": tag}).encode())


def test_every_event_of_a_host_is_known() -> None:
    assert {"ready", "rollout", "score", "broken", "ask", "stalled"} <= _event_fields().keys()
    assert _event_fields()["rollout"].keys() == {"ev", "row", "run", "attempt", "ms", "messages", "n_prompt"}
