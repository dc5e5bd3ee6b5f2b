"""The answer in a conversation, and the boundary between the prompt and the rollout."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_osmosis.text.chat_messages import answer_fault, answer_of, prompt_length, refusal_of

CALLS = [{"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]


def said(content: object, **fields: object) -> dict[str, Any]:
    return {"role": "assistant", "content": content, **fields}


def asked(content: object) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("messages", "answer", "fault"),
    [
        ([], None, "no message"),
        ([asked("42")], None, "no message"),
        ([said("42")], "42", None),
        ([said("41"), said([{"type": "text", "text": "4"}, "2"])], "42", None),
        ([said("42"), said(None)], "", "no text"),
        ([said("42"), {"role": "assistant"}], "", "no text"),
        ([said("42"), said("")], "", "no text"),
        ([said("42"), said([])], "", "no text"),
        ([said("42"), said([{"type": "image_url"}])], "", "no text"),
        ([said(" \n")], " \n", "no text"),
        ([said("42"), said(None, tool_calls=CALLS)], "42", None),
        ([said("42"), said("\n\n", tool_calls=CALLS)], "42", None),
        ([said("42"), said(None, function_call={"name": "f"})], "42", None),
        ([said("42"), said(None, tool_calls=[])], "", "no text"),
        ([said("42"), said("41", tool_calls=CALLS)], "41", None),
        ([said(None, tool_calls=CALLS), {"role": "tool", "content": "42"}], None, "only calls"),
    ],
)
def test_the_answer_is_the_last_message_that_is_more_than_tool_calls(
    messages: Sequence[Mapping[str, Any]], answer: str | None, fault: str | None
) -> None:
    assert (answer_of(messages), answer_fault(messages)) == (answer, fault)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(None, refusal="no"), "no"),
        (said([{"type": "refusal", "refusal": "no"}]), "no"),
        (said("42", refusal=None), None),
        (said("42", refusal=""), None),
        (said("42", refusal=False), None),
    ],
)
def test_a_refusal_has_a_text(message: Mapping[str, Any], text: str | None) -> None:
    assert refusal_of(message) == text


Q, A, Q2, A2 = asked("q"), said("a"), asked("q2"), said("a2")


@pytest.mark.parametrize(
    ("prompt", "conversation", "length"),
    [
        ([Q], [Q, A], 1),
        ([Q, A, Q2], [Q, A, Q2], 3),
        ([Q, A, Q2], [Q, A], 2),
        ([Q, A, Q2], [Q, A, Q2, A], 3),
        ([Q, A, Q], [Q, A, Q, A2], 3),
        ([Q, A, Q2], [asked("system"), Q, A, asked("note"), Q2, A2], 5),
        ([Q, A, Q2], [Q2, A], 1),
        ([Q, A, Q2], [asked("Q"), A, asked("Q2")], 2),
        ([Q, A, Q2], [A2], 0),
        ([Q], [Q, A, Q, A2], 1),
        ([Q, A], [Q, A, A2], 2),
        ([Q, A], [Q, said("a and more")], 1),
        ([Q], [], 0),
        ([], [A], 0),
        ([Q, A, Q2], [{**Q, "name": "me"}, said([{"type": "text", "text": "a"}]), Q2, A2], 3),
    ],
    ids=[
        *("appended", "unchanged", "cut", "same answer", "same question", "notes between", "history left out"),
        *("questions changed", "all left out", "question repeated", "prefilled", "prefill completed", "empty"),
        *("no prompt", "other form"),
    ],
)
def test_the_rollout_begins_after_the_last_message_of_the_prompt(
    prompt: Sequence[Mapping[str, Any]], conversation: Sequence[Mapping[str, Any]], length: int
) -> None:
    assert prompt_length(prompt, conversation) == length


def test_long_conversations_are_compared_in_linear_time() -> None:
    prompt = [asked(f"q{index}") for index in range(20_000)]
    begun = time.process_time()
    assert prompt_length(prompt, [asked(f"other {index}") for index in range(20_000)]) == 0
    assert time.process_time() - begun < 60, "quadratic time would be minutes"
