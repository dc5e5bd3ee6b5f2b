"""Recorded conversations: rows that hold a whole chat, or an answer, so that nothing has to be rolled out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

RECORDED = "recorded"
"""The built-in agent that returns the conversation of its row."""
SOLUTION = "solution_str"
"""The column with an answer: the one to score, or the reference solution of a row that is rolled out."""


def recorded_conversation(prompt: Sequence[Mapping[str, Any]], record: Mapping[str, Any]) -> list[Any]:
    """Return the conversation in a row: its `messages`, or else its prompt and the answer in `solution_str`.

    >>> recorded_conversation([{"role": "user", "content": "6 * 7"}], {"solution_str": "42"})
    [{'role': 'user', 'content': '6 * 7'}, {'role': 'assistant', 'content': '42'}]
    """
    return list(record.get("messages") or [*prompt, {"role": "assistant", "content": record[SOLUTION]}])


def prompt_of(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the messages before the first one of the assistant.

    >>> prompt_of([{"role": "user"}, {"role": "assistant"}, {"role": "user"}, {"role": "assistant"}])
    [{'role': 'user'}]
    """
    first = next((index for index, message in enumerate(messages) if message.get("role") == "assistant"), len(messages))
    return list(messages[:first])
