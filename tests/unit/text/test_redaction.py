"""Secret values are replaced by their names everywhere, except in the fields that make an event an event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.models.headers import secret_headers
from pytest_osmosis.text.redaction import Redaction


def test_long_values_are_replaced_longest_first_and_short_values_are_not() -> None:
    redaction = Redaction({"SHORT": "1234567", "KEY": "abcdefgh", "LONGER": "abcdefgh-ijkl"})
    assert redaction.text("abcdefgh-ijkl abcdefgh 1234567") == "[LONGER] [KEY] 1234567"


def test_white_space_around_a_value_is_not_part_of_it() -> None:
    assert Redaction({"KEY": " abcdefgh\n"}).text("Bearer abcdefgh") == "Bearer [KEY]"


@given(st.text(min_size=8).filter(lambda value: len(value.strip()) >= 8), st.integers(0, 2))
def test_a_value_is_redacted_at_any_depth_of_an_event(value: str, depth: int) -> None:
    content = value
    for _ in range(depth):
        content = json.dumps({"nested": content})
    event = {"ev": "rollout", "row": 1, "messages": [{"role": "user", "content": f"<{content}>", value: [value]}]}
    redacted = json.loads(Redaction({"KEY": value}).event(event))
    assert (redacted["ev"], redacted["row"]) == ("rollout", 1)
    (message,) = redacted["messages"]
    assert value.strip() not in message["content"] or value.strip() in "[KEY]<>"
    assert [key for key in message if key not in ("role", "content")] == [f"{_before(value)}[KEY]{_after(value)}"]


def _before(value: str) -> str:
    return value[: len(value) - len(value.lstrip())]


def _after(value: str) -> str:
    return value[len(value.rstrip()) :]


@pytest.mark.parametrize("value", ["messages", "provider", "12345678", "rewards:exact", 'ev": "rollout'])
def test_a_value_that_equals_a_field_name_does_not_break_events(value: str) -> None:
    event = {
        "ev": "score",
        "row": 12345678,
        "run": 0,
        "attempt": 1,
        "scores": {"rewards:exact": 1.0},
        "errors": {"rewards:exact": {"message": f"said {value}", "details": ""}},
        "boundary": "provider",
        "output": {"stdout": value},
        "metrics": {"rewards:exact": {f"of {value}": 1.0}},
        "reasons": {"rewards:exact": f"saw {value}"},
        "fields": {"rollout": {"plan": [value]}},
        "ground_truth": value,
    }
    redacted = json.loads(Redaction({"KEY": value}).event(event))
    assert redacted == {
        **event,
        "errors": {"rewards:exact": {"message": "said [KEY]", "details": ""}},
        "output": {"stdout": "[KEY]"},
        "metrics": {"rewards:exact": {"of [KEY]": 1.0}},
        "reasons": {"rewards:exact": "saw [KEY]"},
        "fields": {"rollout": {"plan": ["[KEY]"]}},
        "ground_truth": "[KEY]",
    }


def test_headers_that_carry_credentials_are_secret() -> None:
    headers = {"Authorization": "Bearer abc", "X-Api-Key": "def", "Proxy-Authorization": "Basic ghi", "X-Trace": "jkl"}
    assert secret_headers(headers) == {"Authorization": "abc", "X-Api-Key": "def", "Proxy-Authorization": "ghi"}
