"""OpenAI's chat completions, as a server has them: the reverse of `models.completions`.

Our messages have this shape, so they pass unchanged with all of their fields, both ways. Source: the API reference at
platform.openai.com, and the types of the official client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, usage_fields
from pytest_osmosis.models.json_bodies import shape
from pytest_osmosis.models.served import shapes
from pytest_osmosis.models.served.shapes import AnswerLabel, ApiError, ServedRequest, event, pieces
from pytest_osmosis.text.chat_messages import text_of

FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
"""The reasons that the API has. Some clients refuse any other."""

ERROR_TYPES: Mapping[int, str] = {401: "authentication_error", 429: "rate_limit_error"}
STREAMED = ("reasoning_content", "content", "refusal", "tool_calls")
"""The fields of a message that are streamed in pieces, in this order. All others come whole, with its role."""


# -- requests ---------------------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse, or with `n` above 1."""
    rest = dict(body)
    shapes.drop_model(rest)
    messages = shapes.take_messages(rest)
    for position, message in enumerate(messages):
        _check_calls(message, position)
    tools = shapes.take_tools(rest, '{"type": "function", "function": {...}}')
    seed, n = shapes.take_seed(rest), rest.pop("n", None)
    if n not in (None, 1) or isinstance(n, bool):
        raise shapes.refuse(f"{shapes.ONE_ANSWER}, got {n!r}")
    stream, options = shapes.take_flag(rest, "stream"), shapes.take_object(rest, "stream_options")
    chat = ChatRequest(messages, tools, _sampling(rest), seed)
    return ServedRequest(chat, stream, include_usage=options.get("include_usage") is True)


def _check_calls(message: Message, position: int) -> None:
    calls = message.get("tool_calls")
    if calls is not None and not (isinstance(calls, list) and all(isinstance(call, dict) for call in calls)):
        raise shapes.refuse(f"messages[{position}].tool_calls must be a list of objects, got {shape(calls)}")


def _sampling(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other keys. The bound on tokens has two names, of which each server knows one (`max_tokens_key`)."""
    sampling = shapes.given(rest)
    if "max_completion_tokens" in sampling:
        sampling["max_tokens"] = sampling.pop("max_completion_tokens")
    return sampling


# -- replies ----------------------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"content": None, **_told(reply.message)},
        "logprobs": None,
        "finish_reason": _finish_reason(reply),
    }
    body = {**_head(reply, label, "chat.completion"), "choices": [choice]}
    return body if reply.usage is None else {**body, "usage": usage_fields(reply.usage)}


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the chunks of a reply: its message in pieces, its finish_reason, and its tokens in a last one."""
    head = _head(reply, label, "chat.completion.chunk")
    shown = include_usage and reply.usage is not None
    rest = {"usage": None} if shown else {}

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**head, "choices": [choice], **rest})

    yield from map(chunk, _deltas(_told(reply.message)))
    yield chunk({}, _finish_reason(reply))
    if shown and reply.usage is not None:
        yield event({**head, "choices": [], "usage": usage_fields(reply.usage)})
    yield b"data: [DONE]\n\n"


def _told(message: Message) -> Message:
    """Return a message without the items of OpenAI's Responses, which are remembered by the ids of its calls."""
    return {name: value for name, value in message.items() if name != ITEMS}


def _head(reply: ChatReply, label: AnswerLabel, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{label.identity}",
        "object": kind,
        "created": label.created,
        "model": reply.model or label.model,
    }


def _finish_reason(reply: ChatReply) -> str:
    """Return the reply's reason, or the usual one for a reply without any that the API has."""
    if reply.finish_reason in FINISH_REASONS:
        return reply.finish_reason
    return "tool_calls" if reply.tool_calls else "stop"


def _deltas(message: Message) -> Iterator[dict[str, Any]]:
    calls = message.get("tool_calls") or []
    whole = {name: value for name, value in message.items() if name not in STREAMED}
    yield {"role": "assistant", "content": None if calls else "", **whole}
    for name in STREAMED[:-1]:
        for piece in pieces(text_of(message.get(name))):
            yield {name: piece}
    for index, call in enumerate(calls):
        function = call.get("function") or {}
        arguments = function.get("arguments") or ""
        begun = {**call, "function": {**function, "arguments": ""}} if function else call
        yield {"tool_calls": [{"index": index, **begun}]}
        for piece in pieces(arguments):
            yield {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}


# -- errors -----------------------------------------------------------------------------------------------


def write_error(error: ApiError) -> dict[str, Any]:
    kind = ERROR_TYPES.get(error.status, "server_error" if error.is_of_server else "invalid_request_error")
    return {"error": {"message": error.message, "type": kind, "param": None, "code": error.code}}
