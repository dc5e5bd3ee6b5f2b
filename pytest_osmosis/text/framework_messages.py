"""Messages of agent frameworks in the shape of chat completions, to be shown: a record keeps them as they were.

Known are the items of OpenAI's Responses API, which the OpenAI Agents SDK keeps, and the blocks of Amazon Bedrock's
Converse API, which Strands keeps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any


def as_chat_messages(messages: Sequence[object]) -> list[object]:
    """Return the messages, those of frameworks as chat messages, and all others as they are.

    >>> as_chat_messages([{"type": "function_call", "call_id": "1", "name": "add", "arguments": "{}"}])
    [{'role': 'assistant', 'tool_calls': [{'id': '1', 'function': {'name': 'add', 'arguments': '{}'}}]}]
    >>> as_chat_messages([{"type": "function_call_output", "call_id": "1", "output": "3"}])
    [{'role': 'tool', 'tool_call_id': '1', 'content': '3'}]
    """
    return [shown for message in messages for shown in _shown(message)]


def uses_tools(message: Mapping[str, Any]) -> bool:
    """Return True if an assistant message calls tools, in the shape of any API.

    >>> uses_tools({"tool_calls": [{}]}), uses_tools({"content": [{"toolUse": {"name": "add"}}]}), uses_tools({})
    (True, True, False)
    """
    blocks = any(_use(block) is not None or block.get("type") == "tool_use" for block in _blocks(message))
    return bool(message.get("tool_calls") or message.get("function_call")) or blocks


def _shown(message: object) -> Iterator[object]:
    if not isinstance(message, Mapping):
        yield message
    elif message.get("type") == "function_call":
        yield _calling([(message.get("call_id"), message.get("name"), message.get("arguments"))])
    elif message.get("type") == "function_call_output":
        yield {"role": "tool", "tool_call_id": message.get("call_id"), "content": message.get("output")}
    elif any(_use(block) is not None or _result(block) is not None for block in _blocks(message)):
        yield from _unblocked(message)
    else:
        yield message


def _unblocked(message: Mapping[str, Any]) -> Iterator[object]:
    """Yield the messages of a message with blocks: results of tools, then the rest with its calls."""
    rest, calls = [], []
    for block in message["content"]:
        use, result = _use(block), _result(block)
        if result is not None:
            yield {"role": "tool", "tool_call_id": result.get("toolUseId"), "content": result.get("content")}
        elif use is not None:
            calls.append((use.get("toolUseId"), use.get("name"), use.get("input")))
        else:
            rest.append(block)
    if calls:
        yield {**message, "content": rest or None, **_calling(calls)}
    elif rest:
        yield {**message, "content": rest}


def _calling(calls: Sequence[tuple[object, object, object]]) -> dict[str, Any]:
    made = [{"id": call, "function": {"name": name, "arguments": arguments}} for call, name, arguments in calls]
    return {"role": "assistant", "tool_calls": made}


def _blocks(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    content = message.get("content")
    return [block for block in content if isinstance(block, Mapping)] if isinstance(content, list) else []


def _use(block: object) -> Mapping[str, Any] | None:
    return _member(block, "toolUse")


def _result(block: object) -> Mapping[str, Any] | None:
    return _member(block, "toolResult")


def _member(block: object, name: str) -> Mapping[str, Any] | None:
    value = block.get(name) if isinstance(block, Mapping) else None
    return value if isinstance(value, Mapping) else None
