"""`osmosis_ai.rollout.tools`: helpers for agents that execute tools."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.exceptions import ToolArgumentError

__all__ = [
    "create_tool_error_result",
    "create_tool_result",
    "execute_tool_calls",
    "get_tool_call_info",
    "serialize_tool_result",
]


def create_tool_result(tool_call_id: str, content: str) -> dict[str, str]:
    """Return the message with a tool's result."""
    return {"role": "tool", "content": content, "tool_call_id": tool_call_id}


def create_tool_error_result(tool_call_id: str, error_message: str) -> dict[str, str]:
    """Return the message that tells the model about a tool's failure."""
    return create_tool_result(tool_call_id, f"Error: {error_message}")


def serialize_tool_result(result: Any) -> str:
    """Return a result as text: texts and numbers as they are, all else as JSON.

    >>> serialize_tool_result(0.5), serialize_tool_result(True), serialize_tool_result({"a": [1, None]})
    ('0.5', 'true', '{"a": [1, null]}')
    """
    if isinstance(result, str):
        return result
    if isinstance(result, (int, float)) and not isinstance(result, bool):
        return str(result)
    return json.dumps(result)


def _arguments(arguments: Any) -> dict[str, Any]:
    """Return the arguments of a call, from a dict or its JSON. Raises `ToolArgumentError`."""
    if isinstance(arguments, dict):
        return arguments
    if not isinstance(arguments, str):
        raise ToolArgumentError(f"Expected str or dict arguments, got {type(arguments).__name__}")
    try:
        parsed = json.loads(arguments)
    except json.JSONDecodeError as error:
        raise ToolArgumentError(f"Invalid JSON arguments: {error}") from error
    if not isinstance(parsed, dict):
        raise ToolArgumentError(f"Expected dict from JSON, got {type(parsed).__name__}")
    return parsed


def get_tool_call_info(tool_call: dict[str, Any]) -> tuple[str, str, dict[str, Any]]:
    """Return the id, the tool's name and the arguments of a call. Raises `ToolArgumentError` with the first two."""
    call_id, function = tool_call.get("id", "unknown"), tool_call.get("function", {})
    name = function.get("name", "")
    try:
        return call_id, name, _arguments(function.get("arguments", {}))
    except ToolArgumentError as error:
        raise ToolArgumentError(str(error), call_id, name) from error


async def execute_tool_calls(
    tool_calls: list[dict[str, Any]], executor: Callable[[dict[str, Any]], Awaitable[dict[str, str]]]
) -> list[dict[str, str]]:
    """Return the results of all calls, which run at once, in their order."""
    import asyncio

    return list(await asyncio.gather(*map(executor, tool_calls or [])))
