"""The demo server's requests, answers and errors in Anthropic's Messages shape.

This is the reverse of `models.messages`: blocks become chat messages, so that the embedded model reads the same
conversation through either API and gives the same answer for the same seed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.text.chat_messages import text_of

STOP_REASONS: Mapping[str | None, str] = {"length": "max_tokens", "tool_calls": "tool_use"}
ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    404: "not_found_error",
    405: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}


def chat_request(body: Mapping[str, Any]) -> ChatRequest:
    """Return the request in a body without its model. Raises `ValueError` if the Messages API would refuse it."""
    rest = dict(body)
    messages, system, tools, seed = (rest.pop(name, None) for name in ("messages", "system", "tools", "seed"))
    if "max_tokens" not in rest:
        raise ValueError("max_tokens: field required")
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise ValueError("messages must be a list of at least one object, each with a role")
    if not isinstance(tools, list | None) or not all(isinstance(tool, dict) for tool in tools or ()):
        raise ValueError('tools must be a list of objects such as {"name": ..., "input_schema": {...}}')
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise ValueError(f"seed must be an integer, got {seed!r}")
    conversation = [
        *({"role": "system", "content": block} for block in _texts(system)),
        *(chat for message in messages for chat in _chat_messages(message)),
    ]
    return ChatRequest(conversation, [_function(tool) for tool in tools or ()], rest, seed)


def _texts(system: object) -> list[str]:
    return [text_of([block]) for block in system] if isinstance(system, list) else [text_of(system)] if system else []


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": tool.get("name"), "description": tool.get("description", "")}
    return {"type": "function", "function": {**function, "parameters": tool.get("input_schema")}}


def _chat_messages(message: Message) -> list[Message]:
    """Return one turn as chat messages: tool results first, then the text and the tool calls."""
    content = message.get("content")
    if not isinstance(content, list):
        return [message]
    blocks = [block for block in content if isinstance(block, dict)]
    results = [_tool_message(block) for block in blocks if block.get("type") == "tool_result"]
    calls = [_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    text = text_of([block for block in blocks if block.get("type") == "text"])
    if results and not text:
        return results
    spoken: Message = {"role": message.get("role"), "content": text or None}
    return [*results, {**spoken, "tool_calls": calls} if calls else spoken]


def _tool_message(block: Mapping[str, Any]) -> Message:
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": text_of(block.get("content"))}


def _tool_call(block: Mapping[str, Any]) -> dict[str, Any]:
    function = {"name": block.get("name"), "arguments": json.dumps(block.get("input"))}
    return {"id": block.get("id"), "type": "function", "function": function}


def answer(reply: ChatReply, number: int) -> dict[str, Any]:
    usage = reply.usage or Usage(0, 0)
    texts = [{"type": "text", "text": reply.content}] if reply.content else []
    return {
        "id": f"msg_demo_{number}",
        "type": "message",
        "role": "assistant",
        "model": reply.model,
        "content": [*texts, *(_tool_use(call) for call in reply.tool_calls)],
        "stop_reason": STOP_REASONS.get(reply.finish_reason, "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens},
    }


def _tool_use(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {"type": "tool_use", "id": call["id"], "name": function["name"], "input": json.loads(function["arguments"])}


def error(status: int, message: str) -> dict[str, Any]:
    kind = ERROR_TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": message}}
