"""`osmosis_ai.rollout.utils`: helpers for chat messages, which take messages of any shape."""

from __future__ import annotations

from collections import Counter
from typing import Any


def parse_tool_calls(assistant_message: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the calls of a message, [] if it has no list of them."""
    calls = assistant_message.get("tool_calls")
    return calls if isinstance(calls, list) else []


def normalize_stop(stop: Any) -> list[str] | None:
    """Return stop sequences as a list, None if there are none.

    >>> normalize_stop("END"), normalize_stop(["a", 1]), normalize_stop(None)
    (['END'], ['a', '1'], None)
    """
    if isinstance(stop, str):
        return [stop]
    return [str(each) for each in stop] if isinstance(stop, list) else None


def get_message_content(message: dict[str, Any]) -> str:
    """Return the text of a message, "" if it has none."""
    content = message.get("content")
    return content if isinstance(content, str) else ""


def get_message_role(message: dict[str, Any]) -> str:
    """Return the role of a message, "unknown" if it has none."""
    role = message.get("role")
    return role if isinstance(role, str) else "unknown"


def is_assistant_message(message: dict[str, Any]) -> bool:
    return get_message_role(message) == "assistant"


def is_tool_message(message: dict[str, Any]) -> bool:
    return get_message_role(message) == "tool"


def is_user_message(message: dict[str, Any]) -> bool:
    return get_message_role(message) == "user"


def count_messages_by_role(messages: list[dict[str, Any]]) -> dict[str, int]:
    """Return the number of messages of each role."""
    return dict(Counter(map(get_message_role, messages)))


__all__ = [
    "count_messages_by_role",
    "get_message_content",
    "get_message_role",
    "is_assistant_message",
    "is_tool_message",
    "is_user_message",
    "normalize_stop",
    "parse_tool_calls",
]
