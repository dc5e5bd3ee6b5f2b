"""Chat messages in the shape of OpenAI's chat completions: their text, and the answer in a conversation.

A conversation is what an agent returned: most often its prompt and what followed. Only the messages that follow are of
the rollout, and only those can hold its answer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pytest_osmosis.text.framework_messages import uses_tools

AnswerFault = Literal["no message", "only calls", "no text"]
"""The faults of a conversation without an answer."""


def text_of(content: object) -> str:
    """Return the text in a message's content: a string, or the joined text parts of a list, or else "".

    >>> text_of([{"type": "text", "text": "4"}, {"type": "text", "text": "2"}])
    '42'
    """
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = (part.get("text") if isinstance(part, dict) else part for part in content)
        return "".join(part for part in parts if isinstance(part, str))
    return ""


def answer_of(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the text of the last assistant message that is more than tool calls, None if there is no such message.

    A message with neither text nor tool calls is an empty answer, as of a model that stopped while it was reasoning.

    >>> call = {"role": "assistant", "content": None, "tool_calls": [{}]}
    >>> answer_of([{"role": "assistant", "content": "42"}, call])
    '42'
    >>> answer_of([{"role": "assistant", "content": "42"}, {"role": "assistant", "content": None}])
    ''
    >>> answer_of([{"role": "assistant", "content": "42"}, {"role": "assistant", "content": [{"toolUse": {}}]}])
    '42'
    """
    for message in reversed(messages):
        if message.get("role") == "assistant":
            text = text_of(message.get("content"))
            if text.strip() or not uses_tools(message):
                return text
    return None


def answer_fault(messages: Sequence[Mapping[str, Any]]) -> AnswerFault | None:
    """Return what the messages of a rollout have instead of an answer with text, None if they have one."""
    answer = answer_of(messages)
    if answer is not None:
        return None if answer.strip() else "no text"
    return "only calls" if any(message.get("role") == "assistant" for message in messages) else "no message"


REFUSED = "the model refused: "
FILTERED = "a content filter stopped the answer"
"""Beginnings of the errors of rollouts in which the model, or a filter in front of it, would not answer."""


def refusal_of(message: Mapping[str, Any]) -> str | None:
    """Return the text with which a model refused to answer, None if it did not refuse.

    >>> refusal_of({"role": "assistant", "content": [{"type": "refusal", "refusal": "I will not"}]})
    'I will not'
    """
    content = message.get("content")
    parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
    texts = [message.get("refusal"), *(part.get("refusal") for part in parts)]
    return next((text for text in texts if isinstance(text, str) and text), None)


def prompt_length(prompt: Sequence[Mapping[str, Any]], conversation: Sequence[Mapping[str, Any]]) -> int:
    """Return how many messages of a conversation, from the first, come from its prompt.

    An agent may have changed, added and left out messages: the rollout begins after the last message that it took over.
    A message that the prompt holds twice is taken over twice, unless the conversation has fewer of it.

    >>> question, answer = {"role": "user", "content": "6 * 7"}, {"role": "assistant", "content": "42"}
    >>> prompt_length([question], [{"role": "system", "content": "Think."}, question, answer])
    2
    >>> prompt_length([question, answer], [question, answer])
    2
    """
    pairs = zip(prompt, conversation, strict=False)
    n_equal = next((index for index, pair in enumerate(pairs) if not _are_same(*pair)), None)
    if n_equal is None:
        return min(len(prompt), len(conversation))
    return max(n_equal, _end_of_prompt([*map(_identity, prompt)], [*map(_identity, conversation)]))


def _end_of_prompt(prompt: Sequence[str], conversation: Sequence[str]) -> int:
    """Return the position after the last message of the prompt that the conversation holds, 0 if it holds none."""
    ends: dict[str, list[int]] = {}
    for end, message in enumerate(conversation, start=1):
        ends.setdefault(message, []).append(end)
    last = next((index for index in reversed(range(len(prompt))) if prompt[index] in ends), None)
    if last is None:
        return 0
    found, times = ends[prompt[last]], prompt[: last + 1].count(prompt[last])
    return found[min(times, len(found)) - 1]


def _are_same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return one == other or _identity(one) == _identity(other)


def _identity(message: Mapping[str, Any]) -> str:
    """Return what makes two messages the same: role, text and tool calls."""
    calls = message.get("tool_calls") or None
    return json.dumps([message.get("role"), text_of(message.get("content")), calls], default=str)
