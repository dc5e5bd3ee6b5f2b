"""The answer in a conversation, where the rollout begins, and messages of agent frameworks as chat messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.report.failure_text import conversation_lines
from pytest_osmosis.text.chat_messages import answer_fault, answer_of, as_chat_messages, prompt_length, refusal_of

CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def said(content: object, **fields: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def asked(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("messages", "answer", "fault"),
    [
        ([], None, "no message"),
        ([said("42")], "42", None),
        ([said("41"), said([{"type": "text", "text": "4"}, "2"])], "42", None),
        ([said("42"), said(None)], "", "no text"),
        ([said("42"), {"role": "assistant"}], "", "no text"),
        ([said("42"), said([{"type": "image_url"}])], "", "no text"),
        ([said(" \n")], " \n", "no text"),
        ([said("42"), said(None, tool_calls=CALLS)], "42", None),
        ([said("42"), said(None, function_call={"name": "f"})], "42", None),
        ([said("42"), said(None, tool_calls=[])], "", "no text"),
        ([said("42"), said("41", tool_calls=CALLS)], "41", None),
        ([said(None, tool_calls=CALLS), {"role": "tool", "content": "42"}], None, "only calls"),
    ],
)
def test_the_answer_is_the_last_message_that_is_more_than_tool_calls(messages: Any, answer: Any, fault: Any) -> None:
    assert (answer_of(messages), answer_fault(messages)) == (answer, fault)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(None, refusal="no"), "no"),
        (said([{"type": "refusal", "refusal": "no"}]), "no"),
        (said("42", refusal=None), None),
        (said("42", refusal=False), None),
    ],
)
def test_a_refusal_has_a_text(message: Mapping[str, Any], text: str | None) -> None:
    assert refusal_of(message) == text


Q, A, Q2, A2 = asked("q"), said("a"), asked("q2"), said("a2")


BEGINS: dict[str, tuple[list[Any], list[Any], int]] = {
    "appended": ([Q], [Q, A], 1),
    "unchanged": ([Q, A, Q2], [Q, A, Q2], 3),
    "cut": ([Q, A, Q2], [Q, A], 2),
    "same answer": ([Q, A, Q2], [Q, A, Q2, A], 3),
    "same question": ([Q, A, Q], [Q, A, Q, A2], 3),
    "notes between": ([Q, A, Q2], [asked("system"), Q, A, asked("note"), Q2, A2], 5),
    "history left out": ([Q, A, Q2], [Q2, A], 1),
    "questions changed": ([Q, A, Q2], [asked("Q"), A, asked("Q2")], 2),
    "all left out": ([Q, A, Q2], [A2], 0),
    "question repeated": ([Q], [Q, A, Q, A2], 1),
    "prefilled": ([Q, A], [Q, A, A2], 2),
    "prefill completed": ([Q, A], [Q, said("a and more")], 1),
    "empty": ([Q], [], 0),
    "no prompt": ([], [A], 0),
    "other form": ([Q, A, Q2], [{**Q, "name": "me"}, said([{"type": "text", "text": "a"}]), Q2, A2], 3),
}
"""A prompt, a conversation, and how many of its messages are of the prompt."""


@pytest.mark.parametrize(("prompt", "conversation", "length"), BEGINS.values(), ids=BEGINS)
def test_the_rollout_begins_after_the_last_message_of_the_prompt(prompt: Any, conversation: Any, length: int) -> None:
    assert prompt_length(prompt, conversation) == length


def test_long_conversations_are_compared_in_linear_time() -> None:
    """Quadratic time would be minutes."""
    prompt, others = ([asked(f"{name} {index}") for index in range(20_000)] for name in ("q", "other"))
    assert prompt_length(prompt, others) == 0


QUESTION = {"role": "user", "content": "What is 6 * 7?"}
RESPONSES = [
    QUESTION,
    {"type": "function_call", "call_id": "c1", "name": "multiply", "arguments": '{"a": 6, "b": 7}'},
    {"type": "function_call_output", "call_id": "c1", "output": "42.0"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "42"}]},
]
BLOCKS = [
    {"role": "user", "content": [{"text": "What is 6 * 7?"}]},
    {
        "role": "assistant",
        "content": [{"toolUse": {"toolUseId": "c1", "name": "multiply", "input": {"a": 6, "b": 7}}}],
    },
    {
        "role": "user",
        "content": [{"toolResult": {"toolUseId": "c1", "status": "success", "content": [{"text": "42.0"}]}}],
    },
    {"role": "assistant", "content": [{"text": "42"}]},
]


@pytest.mark.parametrize("messages", [RESPONSES, BLOCKS], ids=["responses", "blocks"])
def test_calls_and_results_of_frameworks_are_shown_as_those_of_chat_messages(messages: Any) -> None:
    assert conversation_lines(messages) == [
        "conversation:",
        "  user: What is 6 * 7?",
        '  assistant: -> multiply({"a": 6, "b": 7})',
        "  tool: 42.0",
        "  assistant: 42",
    ]


def test_a_message_with_text_calls_and_results_becomes_several() -> None:
    blocks = [{"toolResult": {"toolUseId": "c1", "content": []}}, {"text": "and"}, {"toolUse": {"name": "add"}}]
    assert as_chat_messages([{"role": "assistant", "content": blocks}]) == [
        {"role": "tool", "tool_call_id": "c1", "content": []},
        {
            "role": "assistant",
            "content": [{"text": "and"}],
            "tool_calls": [{"id": None, "function": {"name": "add", "arguments": None}}],
        },
    ]


@pytest.mark.parametrize(
    "message", [None, 3, {}, QUESTION, {"content": [None, 3, {"toolUse": 3}]}, {"content": {"toolUse": {}}}]
)
def test_other_messages_stay_as_they_are(message: object) -> None:
    assert as_chat_messages([message]) == [message]
