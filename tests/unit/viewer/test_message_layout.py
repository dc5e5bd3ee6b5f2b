"""Conversations laid out to be read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pytest_osmosis.addons.viewer.message_layout import Shortener, message_lines
from pytest_osmosis.text.safe import width
from tests.golden import Golden

LONG = {"city": "Paris", "days": [1, 2], "notes": "mild, " * 12, "language": "français"}
PARTS = [
    {"type": "text", "text": "Look: "},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    {"type": "image_url", "image_url": {"url": "https://example.com/cat.png"}},
    {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "AAAA"}},
    {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
    {"type": "file", "file": {"filename": "report.pdf"}},
    {"type": "hologram"},
    "and ",
    {"type": "text", "text": "this."},
]


def call(id: str | None, name: str = "weather", arguments: object = '{"city": "Paris"}') -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: object, content: str | None = None) -> dict[str, object]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": content}


@pytest.mark.parametrize(
    "messages",
    [
        [result("a", "sun")],
        [asking(call("a")), {"role": "user", "content": "Well?"}, result("a", "sun")],
        [asking(call("b")), result("a", "sun")],
        [asking(call(None)), result("a", "sun")],
    ],
    ids=["no call", "somebody spoke between", "another call", "a call without an id"],
)
def test_a_result_without_its_call_keeps_its_place_and_its_id(messages: Sequence[object]) -> None:
    assert list(message_lines(messages, Shortener()))[-2:] == ["tool (a):", "    sun"]


SHOWN: dict[str, Sequence[object]] = {
    "results in another order than their calls": [
        *(asking(call("a"), call("b", "time", "{}"), content="Both."), result("b", "noon"), result("a", "sun")),
    ],
    "two calls with one id": [asking(call("a")), result("a", "sun"), asking(call("a")), result("a", "rain")],
    "long arguments and results": [asking(call("a", "plan", json.dumps(LONG))), result("a", json.dumps(LONG))],
    "arguments that are no JSON text": [
        asking(call("a", "f", {"x": 1}), call("b", "g", "{not json"), call("c", "h", None)),
    ],
    "a call and a result of the Responses API": [
        {"type": "function_call", "call_id": "a", "name": "weather", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "a", "output": "sun"},
    ],
    "reasoning and a refusal": [
        {"role": "assistant", "reasoning_content": "Hm.\nYes.", "content": "No.", "refusal": "I will not"},
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
    ],
    "members that have no place": [
        {"role": "assistant", "content": "x", "annotations": [{"url": "y"}], "logprobs": None, "name": "bob"},
    ],
    "parts that are no text": [{"role": "user", "content": PARTS}],
    "blocks of Anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Hm."},
                {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
                {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]},
            ],
        },
    ],
}


def test_a_conversation_is_laid_out_to_be_read(golden: Golden) -> None:
    shown = {name: list(message_lines(messages, Shortener())) for name, messages in SHOWN.items()}

    golden(shown)
    assert max(width(line) for lines in shown.values() for line in lines) < 100


@pytest.mark.parametrize(
    "message",
    [
        "text", None, 7, ["x"], {}, {"role": None, "content": 3},
        {"role": "assistant", "tool_calls": [None, {"function": None}, {"function": {"name": None}}, 3]},
        {"role": "assistant", "tool_calls": {"a": 1}, "function_call": {"name": "f", "arguments": 3}},
        {"role": "assistant", "content": [None, 3, [], {"type": ["x"]}, {"text": 3}, {"type": "image", "image": 3}]},
        {"role": "tool", "tool_call_id": ["x"], "content": {"a": [1]}},
        {"role": "assistant", "audio": {"transcript": 3}, "reasoning": {"x": 1}, "refusal": ["no"]},
    ],
)  # fmt: skip
def test_anything_can_be_a_message(message: object) -> None:
    lines = list(message_lines([message, message], Shortener()))
    assert lines
    assert all("\n" not in line for line in lines)


def test_only_long_texts_lose_their_middle_and_are_counted() -> None:
    cut = Shortener(200)
    text = "\n".join(message_lines([{"role": "user", "content": "a" * 150 + "b" * 150}], cut))
    assert "140 characters left out" in text
    assert text.count("a") < 150
    assert cut.n_cut == 1
    assert not any("left out" in line for line in message_lines([{"role": "user", "content": "a" * 200}], cut))
    assert cut.n_cut == 1
