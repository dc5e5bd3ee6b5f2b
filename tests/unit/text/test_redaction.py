"""Secret values are replaced by their names everywhere, except in the fields that make an event an event."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.models.providers import secret_headers
from pytest_osmosis.text.redaction import Redaction


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
    def event(said: str) -> dict[str, object]:
        return {
            "ev": "score",
            "row": 12345678,
            "run": 0,
            "attempt": 1,
            "scores": {"rewards:exact": 1.0},
            "errors": {"rewards:exact": {"message": f"said {said}", "details": ""}},
            "boundary": "provider",
            "output": {"stdout": said},
            "metrics": {"rewards:exact": {f"of {said}": 1.0}},
            "reasons": {"rewards:exact": f"saw {said}"},
            "fields": {"rollout": {"plan": [said]}},
            "ground_truth": said,
        }

    assert json.loads(Redaction({"KEY": value}).event(event(value))) == event("[KEY]")


def test_a_value_that_is_added_later_is_redacted_from_then_on() -> None:
    redaction = Redaction({"FIRST": "abcdefgh"})
    event = {"ev": "log", "text": "abcdefgh 12345678"}
    assert json.loads(redaction.event(event))["text"] == "[FIRST] 12345678"
    redaction.add({"SECOND": "12345678"})
    assert json.loads(redaction.event(event))["text"] == "[FIRST] [SECOND]"
    assert redaction.may_be_in(b"12345678")


def test_the_first_name_of_a_value_counts_and_what_is_under_some_keys_may_stay() -> None:
    assert Redaction({"ONE": "abcdefgh", "TWO": "abcdefgh"}, {"THREE": "abcdefgh"}).text("abcdefgh") == "[ONE]"

    value = {"id": "abcdefgh", "abcdefgh": ("abcdefgh", {"id": ["abcdefgh"], "n": 1, "no": None})}
    redacted = Redaction({"KEY": "abcdefgh"}).value(value, unchanged={"id"})
    assert redacted == {"id": "abcdefgh", "[KEY]": ["[KEY]", {"id": ["abcdefgh"], "n": 1, "no": None}]}


class Fields(Mapping[str, object]):
    """A mapping that does not show what it holds."""

    def __getitem__(self, key: str) -> object:
        return {"key": "abcdefgh"}[key]

    def __iter__(self) -> Iterator[str]:
        return iter(("key",))

    def __len__(self) -> int:
        return 1


class Said:
    def __str__(self) -> str:
        return "it was abcdefgh"


HOLDERS: dict[str, tuple[object, object]] = {
    "tuple": (("abcdefgh",), ["[KEY]"]),
    "key": ({"abcdefgh": 1}, {"[KEY]": 1}),
    "value of a number": ({12: "abcdefgh"}, {"12": "[KEY]"}),
    "number as key": ({12345678.5: 0}, {"12345678.5": 0}),
    "object": (Said(), "it was [KEY]"),
    "mapping beside a number without JSON": ([math.nan, Fields()], ["nan", {"key": "[KEY]"}]),
    "list": ([1, 2.5, True, None, "abcdefgh"], [1, 2.5, True, None, "[KEY]"]),
}


@pytest.mark.parametrize(("given", "redacted"), HOLDERS.values(), ids=HOLDERS)
def test_a_value_is_redacted_in_whatever_an_event_holds(given: object, redacted: object) -> None:
    assert json.loads(Redaction({"KEY": "abcdefgh"}).event({"ev": "log", "text": given}))["text"] == redacted


def test_headers_that_carry_credentials_are_secret() -> None:
    headers = {"Authorization": "Bearer abc", "X-Api-Key": "def", "Proxy-Authorization": "Basic ghi", "X-Trace": "jkl"}
    assert secret_headers(headers) == {"Authorization": "abc", "X-Api-Key": "def", "Proxy-Authorization": "ghi"}
