"""Conversations laid out to be read."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from pytest_osmosis.report.message_layout import Shortener, message_lines
from pytest_osmosis.text.safe import width

LONG = {"city": "Paris", "days": list(range(30)), "units": "metric", "language": "français"}


def call(id: str | None, name: str = "weather", arguments: object = '{"city": "Paris"}') -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


def asking(*calls: object, content: str | None = None) -> dict[str, object]:
    return {"role": "assistant", "content": content, "tool_calls": list(calls)}


def result(id: str, content: object) -> dict[str, object]:
    return {"role": "tool", "tool_call_id": id, "content": content}


def laid_out(messages: Sequence[object], most: int | None = None) -> str:
    return "\n".join(message_lines(messages, Shortener(most)))


def test_a_result_stands_below_the_latest_call_with_its_id_whatever_the_order() -> None:
    messages = [asking(call("a"), call("b", "time", "{}"), content="Both."), result("b", "noon"), result("a", "sun")]
    assert laid_out(messages) == (
        '\nassistant:\n    Both.\n    -> weather({"city": "Paris"})\n    <- sun\n    -> time({})\n    <- noon'
    )

    again = [asking(call("a")), result("a", "sun"), asking(call("a")), result("a", "rain")]
    assert laid_out(again).split("\n")[2:4] == ['    -> weather({"city": "Paris"})', "    <- sun"]
    assert laid_out(again).endswith("    <- rain")


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
    assert laid_out(messages).endswith("\ntool (a):\n    sun")


def test_long_arguments_and_results_become_indented_json_and_others_stay() -> None:
    text = laid_out([asking(call("a", "plan", json.dumps(LONG))), result("a", json.dumps(LONG))])
    lines = text.split("\n")
    assert lines[2:5] == ["    -> plan({", '         "city": "Paris",', '         "days": [']
    assert '         "language": "français"' in lines
    assert "       })" in lines
    assert "    <- {" in lines
    assert max(map(width, lines)) < 100

    calls = [call("a", "f", {"x": 1}), call("b", "g", "{not json"), call("c", "h", None)]
    assert laid_out([asking(*calls)]).split("\n")[2:] == [
        '    -> f({"x": 1}) (a)',
        "    -> g({not json) (b)",
        "    -> h() (c)",
    ]


def test_reasoning_and_refusals_and_what_has_no_place_are_named() -> None:
    said = {"role": "assistant", "reasoning_content": "Hm.\nYes.", "content": "No.", "refusal": "I will not"}
    other = {"role": "assistant", "content": "x", "annotations": [{"url": "y"}], "logprobs": None, "name": "bob"}
    parts = [{"type": "refusal", "refusal": "no"}]

    assert laid_out([said]) == (
        "\nassistant:\n    reasoning:\n        Hm.\n        Yes.\n    No.\n    refused: I will not"
    )
    assert laid_out([other]) == "\nassistant (bob):\n    x\n    [also: annotations]"
    assert laid_out([{"role": "assistant", "content": parts}]).count("no") == 1


def test_parts_that_are_no_text_are_named_and_blocks_of_anthropic_shown_as_what_they_are() -> None:
    parts = [
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
    assert laid_out([{"role": "user", "content": parts}]).split("\n")[2:] == [
        "    Look:",
        "    [image_url]",
        "    [image_url: https://example.com/cat.png]",
        "    [image]",
        "    [input_audio]",
        "    [file: report.pdf]",
        "    [hologram]",
        "    and this.",
    ]

    content = [
        {"type": "thinking", "thinking": "Hm."},
        {"type": "tool_use", "id": "a", "name": "weather", "input": {"city": "Paris"}},
        {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "sun"}]},
    ]
    assert laid_out([{"role": "assistant", "content": content}]).split("\n")[2:] == [
        "    reasoning: Hm.",
        '    -> weather({"city": "Paris"})',
        "    <- sun",
    ]


@pytest.mark.parametrize(
    "message",
    [
        "text",
        None,
        7,
        ["x"],
        {},
        {"role": None, "content": 3},
        {"role": "assistant", "tool_calls": [None, {"function": None}, {"function": {"name": None}}, 3]},
        {"role": "assistant", "tool_calls": {"a": 1}, "function_call": {"name": "f", "arguments": 3}},
        {"role": "assistant", "content": [None, 3, [], {"type": ["x"]}, {"text": 3}, {"type": "image", "image": 3}]},
        {"role": "tool", "tool_call_id": ["x"], "content": {"a": [1]}},
        {"role": "assistant", "audio": {"transcript": 3}, "reasoning": {"x": 1}, "refusal": ["no"]},
    ],
)
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
