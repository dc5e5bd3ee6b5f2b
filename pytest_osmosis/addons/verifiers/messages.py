"""Messages of verifiers as chat messages in the shape of OpenAI's chat completions, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pytest_osmosis.addons.verifiers import imported
from pytest_osmosis.models.base import Message

MESSAGES = "utils.message_utils"


def chat_message(message: Any) -> Message:
    """Return a message of verifiers, or a chat message, as a chat message.

    >>> chat_message({"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]})["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]
    >>> chat_message({"role": "text", "content": "2 + 2 = "})
    {'role': 'user', 'content': '2 + 2 = '}
    """
    data = _data(message)
    plain = {name: _plain(value) for name, value in data.items() if value is not None or name == "content"}
    if plain.get("role") == "text":
        plain["role"] = "user"
    calls = plain.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        if calls:
            plain["tool_calls"] = [_call(call) for call in calls]
        else:
            del plain["tool_calls"]
    return plain


def chat_messages(value: Any) -> list[Message]:
    """Return the messages of a prompt or a completion. A text is one message of the user."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [chat_message(message) for message in value]


def is_message(value: object) -> bool:
    """Return True for a message of verifiers. Plain dictionaries are data like any other."""
    return hasattr(value, "model_dump") and hasattr(value, "role") and hasattr(value, "content")


def environment_messages(messages: Iterable[Message]) -> list[Any]:
    """Return chat messages as the environment has them: as those of verifiers if it has imported verifiers."""
    normalize: Callable[[list[Any]], list[Any]] | None
    normalize = getattr(imported(MESSAGES), "normalize_messages", None)
    given = [dict(message) for message in messages]
    return given if normalize is None else normalize(given)


def _data(message: Any) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return message
    if hasattr(message, "model_dump"):
        data: dict[str, Any] = message.model_dump(exclude_none=True)
        return data | {"content": _content(message)}
    if isinstance(message, str):
        return {"role": "user", "content": message}
    raise TypeError(f"a message must be a mapping or a message of verifiers, got {type(message).__name__}")


def _content(message: Any) -> Any:
    content = getattr(message, "content", None)
    return [_plain(part) for part in content] if isinstance(content, list) else content


def _plain(value: Any) -> Any:
    """Return the data of models of pydantic, which an environment may put anywhere into a message."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def _call(call: Any) -> Any:
    """Return a tool call in the shape of chat completions. In verifiers it is flat, and JSON text in its files."""
    if isinstance(call, str):
        call = json.loads(call)
    if not isinstance(call, Mapping) or "function" in call or "name" not in call:
        return call
    function = {"name": call["name"], "arguments": call.get("arguments", "{}")}
    return {"id": call.get("id"), "type": "function", "function": function}
