"""The built-in agent for tools of an MCP server (`--osmosis-mcp`): the model calls them until it answers.

Each rollout connects to the server by itself, in memory, so that what its tools print belongs to the rollout. The
server object is shared by all rollouts of a host, and its lifespan by those in flight. Only the public API of fastmcp
is used: `Client`, `list_tools` and `call_tool`.

Source of the behaviour: osmosis_ai.rollout.mcp, SDK 0.2.17.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext, RolloutOutput
from pytest_osmosis.text.user_code import described

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
"""The names that OpenAI takes for functions."""
MAX_TURNS = "max_turns"


class UnusableTools(Exception):
    """The server has no tool, or tools that cannot be offered to a model."""


@dataclass(frozen=True, slots=True)
class McpAgent:
    """Offers the `tools` of `server`, a FastMCP object, and calls those that the model asks for, in their order."""

    server: Any
    tools: Sequence[Mapping[str, Any]]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation, up to an answer without tool calls or to the turn `ctx.max_turns`."""
        from fastmcp import Client

        messages: list[Message] = list(ctx.prompt)
        calls = _Calls()
        async with Client(self.server) as client:
            for _ in range(ctx.max_turns):
                reply = await ctx.chat(messages, self.tools)
                messages.append(reply.message)
                asked = reply.message.get("tool_calls") or []
                if not asked:
                    return RolloutOutput(messages, calls.metrics, {})
                for call in asked:
                    messages.append(await calls.answered(client, call))
        return RolloutOutput(messages, calls.metrics, {"finish_reason": MAX_TURNS})


@dataclass(slots=True)
class _Calls:
    """The tool calls of a rollout."""

    n: int = 0
    n_errors: int = 0

    @property
    def metrics(self) -> dict[str, float]:
        return {"tool_calls": self.n, "tool_errors": self.n_errors}

    async def answered(self, client: Any, call: Mapping[str, Any]) -> Message:
        """Call a tool, and return the message with its result. Whatever it raises is told to the model."""
        self.n += 1
        try:
            name, arguments = _called(call)
            result = await client.call_tool(name, arguments, raise_on_error=False)
            content, failed = (f"Error: {_text(result)}", True) if result.is_error else (_value_text(result), False)
        except Exception as error:
            content, failed = f"Error: {error}", True
        self.n_errors += failed
        return {"role": "tool", "content": content, "tool_call_id": call.get("id", "unknown")}


def _called(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a tool call. Raises `ValueError`.

    Models without arguments may send "" for them.
    """
    function = call.get("function") or {}
    given = function.get("arguments") or "{}"
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError as error:
        raise ValueError(f"Invalid JSON arguments: {error}") from error
    if not isinstance(arguments, dict):
        raise ValueError(f"Expected dict from JSON, got {type(arguments).__name__}")
    return function.get("name") or "", arguments


def _value_text(result: Any) -> str:
    """Return what a tool returned as the text that the model gets: structured content, or else the parts of it."""
    structured = result.structured_content
    if structured is None:
        return _text(result)
    value = structured["result"] if list(structured) == ["result"] else structured
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else json.dumps(value)


def _text(result: Any) -> str:
    """Return the texts among the parts of a result. Of others, which no tool message can hold, their type is told."""
    return "\n".join(filter(None, map(_part_text, result.content)))


def _part_text(part: Any) -> str:
    if isinstance(text := getattr(part, "text", None), str):
        return text
    resource = getattr(part, "resource", None)
    if isinstance(text := getattr(resource, "text", None), str):
        return text
    if part.type == "resource_link":
        return f"[{part.uri}]"
    fields = part.model_dump(by_alias=True) if resource is None else resource.model_dump(by_alias=True)
    return f"[{part.type}, {fields.get('mimeType') or 'unknown type'}: not shown]"


async def offered_tools(server: Any) -> list[dict[str, Any]]:
    """Return the tools of a server as functions of OpenAI's API. Raises `UnusableTools`."""
    from fastmcp import Client

    async with Client(server) as client:
        tools = await client.list_tools()
    if not tools:
        raise UnusableTools("the server has no tools; register functions with @mcp.tool, and import their modules")
    refused = [described(tool.name) for tool in tools if not TOOL_NAME.fullmatch(tool.name)]
    if refused:
        raise UnusableTools(
            f"names of tools that models cannot call: {', '.join(refused)}; a name has up to 64 letters, digits, "
            "underscores and hyphens: rename them with @mcp.tool(name=...)"
        )
    return [_function(tool.model_dump(by_alias=True, exclude_none=True)) for tool in tools]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return the function of OpenAI's API for a tool in the fields of MCP."""
    parameters = {"type": "object", "properties": {}, **tool["inputSchema"]}
    description = {"description": tool["description"]} if tool.get("description") else {}
    return {"type": "function", "function": {"name": tool["name"], **description, "parameters": parameters}}
