"""Anthropic's Messages, as a server has them: the reverse of `models.messages`.

Turns become chat messages: each block of `system` a system message, each tool result a message of its own before what
the user says. What chat completions cannot represent stays where `models.messages` finds it, for a model behind that
has this API too: the blocks of an assistant's turn as `content_blocks`, `is_error` on a tool's message, and
`cache_control` on a part, a tool or a tool's message. Source: the API reference at docs.anthropic.com, and the types
of the official client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.messages import Block, assistant_message, block_fault
from pytest_osmosis.models.served import shapes
from pytest_osmosis.models.served.shapes import AnswerLabel, ApiError, ServedRequest, event, pieces
from pytest_osmosis.text.chat_messages import refusal_of, text_of

STOP_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
"""The stop_reason for each finish_reason. Those that the API has itself keep their name."""
OWN_STOP_REASONS = frozenset({"pause_turn"})

ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "not_found_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}

TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "any": "required"}

INVALID_JSON = "INVALID_JSON"
"""The key under which a tool's input carries arguments that are not a JSON object. Anthropic's guide to fine-grained
tool streaming names it."""


# -- requests ---------------------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse."""
    rest = dict(body)
    if rest.get("max_tokens") is None:
        raise shapes.refuse("max_tokens: field required")
    shapes.drop_model(rest)
    turns = shapes.take_messages(rest)
    tools = shapes.take_tools(rest, '{"name": ..., "input_schema": {...}}')
    seed, stream = shapes.take_seed(rest), shapes.take_flag(rest, "stream")
    conversation = [
        *_system_messages(rest.pop("system", None)),
        *(message for position, turn in enumerate(turns) for message in _chat_messages(turn, position)),
    ]
    return ServedRequest(ChatRequest(conversation, [_function(tool) for tool in tools], _sampling(rest), seed), stream)


def _sampling(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other keys under the names of chat completions. Unknown names stay."""
    sampling = shapes.given(rest)
    if "stop_sequences" in sampling:
        sampling["stop"] = sampling.pop("stop_sequences")
    metadata = shapes.take_object(sampling, "metadata")
    if metadata.keys() == {"user_id"} and metadata["user_id"] is not None:
        sampling["user"] = metadata["user_id"]
    elif shapes.given(metadata):
        sampling["metadata"] = metadata
    sampling |= _output(sampling)
    choice = shapes.take_object(sampling, "tool_choice")
    if choice:
        sampling["tool_choice"] = _tool_choice(choice)
        if choice.get("disable_parallel_tool_use"):
            sampling["parallel_tool_calls"] = False
    return sampling


def _output(sampling: dict[str, Any]) -> dict[str, Any]:
    """Remove the effort and the schema of an answer, and return them as chat completions have them."""
    output = dict(shapes.take_object(sampling, "output_config"))
    found: dict[str, Any] = {}
    effort, wanted = output.pop("effort", None), output.get("format")
    if effort is not None:
        found["reasoning_effort"] = effort
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        del output["format"]
        schema = {"name": "answer", "schema": wanted.get("schema"), "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {**found, "output_config": output} if shapes.given(output) else found


def _tool_choice(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in TOOL_CHOICES:
        raise shapes.refuse(f'tool_choice must have a type: "auto", "any", "tool" or "none", got {kind!r}')
    return TOOL_CHOICES[kind]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool of the client as a function, and one that the API's own server runs unchanged."""
    if "input_schema" not in tool:
        return dict(tool)
    names = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
    function = {ours: tool[name] for name, ours in names.items() if tool.get(name) is not None}
    rest = {name: value for name, value in tool.items() if name not in names and name != "type"}
    return {"type": "function", "function": function, **shapes.given(rest)}


def _system_messages(system: object) -> list[Message]:
    shapes.check_content(system, "system")
    blocks = system if isinstance(system, list) else [system] if system else []
    return [{"role": "system", "content": _content([block])} for block in blocks]


def _chat_messages(turn: Message, position: int) -> list[Message]:
    """Return one turn as chat messages: tool results first, then the turn itself, if it holds anything else."""
    content, name = turn.get("content"), f"messages[{position}].content"
    if content is None:
        raise shapes.refuse(f"{name}: field required")
    if isinstance(content, str):
        return [{"role": turn["role"], "content": content}]
    blocks = [_block(block, f"{name}[{index}]") for index, block in enumerate(content)]
    if turn["role"] == "assistant":
        return [_assistant_message(blocks)]
    results = [_tool_message(block) for block in blocks if block["type"] == "tool_result"]
    said = [block for block in blocks if block["type"] != "tool_result"]
    return results if results and not said else [*results, {"role": turn["role"], "content": _content(said)}]


def _block(block: object, name: str) -> Block:
    if isinstance(block, str):
        return {"type": "text", "text": block}
    fault = block_fault(block)
    if fault is not None or not isinstance(block, dict):
        raise shapes.refuse(f"{name}: {fault}")
    if block["type"] == "tool_result":
        shapes.check_content(block.get("content"), f"{name}.content")
    return block


def _assistant_message(blocks: list[Block]) -> Message:
    message = assistant_message(blocks)
    for call, block in zip(
        message.get("tool_calls", ()), (each for each in blocks if each["type"] == "tool_use"), strict=True
    ):
        if block["input"].keys() == {INVALID_JSON} and isinstance(block["input"][INVALID_JSON], str):
            call["function"]["arguments"] = block["input"][INVALID_JSON]
    return message


def _tool_message(block: Block) -> Message:
    content = block.get("content")
    parts = content if isinstance(content, list) else [] if content is None else [content]
    rest = {name: block[name] for name in ("is_error", "cache_control") if block.get(name)}
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": _content(parts), **rest}


def _content(blocks: Sequence[Any]) -> str | list[Any]:
    """Return the content of a chat message: the text of a single plain block, which every server accepts, or parts."""
    parts = [_part(block) for block in blocks]
    if not parts:
        return ""
    only = parts[0] if len(parts) == 1 else {}
    return only["text"] if only.keys() == {"type", "text"} else parts


def _part(block: Any) -> dict[str, Any]:
    """Return the part for a block. One that chat completions do not have stays as it is."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    url = _image_url(block.get("source")) if block.get("type") == "image" else None
    if url is None:
        return dict(block)
    rest = {name: value for name, value in block.items() if name not in ("type", "source")}
    return {"type": "image_url", "image_url": {"url": url}, **shapes.given(rest)}


def _image_url(source: object) -> str | None:
    if isinstance(source, dict) and source.get("type") == "url" and isinstance(source.get("url"), str):
        return str(source["url"])
    if isinstance(source, dict) and source.get("type") == "base64":
        return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return None


# -- replies ----------------------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    return {**_head(reply, label), "content": _blocks(reply.message), **_end(reply), "usage": _usage(reply.usage)}


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of a reply: its blocks in pieces, then its stop_reason. The API always sends the tokens."""
    usage = _usage(reply.usage)
    begun = {**_head(reply, label), "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message={**begun, "usage": {**usage, "output_tokens": 0}})
    for index, block in enumerate(_blocks(reply.message)):
        start, deltas = _streamed(block)
        yield _event("content_block_start", index=index, content_block=start)
        for delta in deltas:
            yield _event("content_block_delta", index=index, delta=delta)
        yield _event("content_block_stop", index=index)
    yield _event("message_delta", delta=_end(reply), usage=usage)
    yield _event("message_stop")


def _event(kind: str, **data: Any) -> bytes:
    return event({"type": kind, **data}, kind)


def _head(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    return {
        "id": f"msg_{label.identity}",
        "type": "message",
        "role": "assistant",
        "model": reply.model or label.model,
    }


def _end(reply: ChatReply) -> dict[str, Any]:
    reason = _stop_reason(reply)
    refusal = refusal_of(reply.message)
    details = {"type": "refusal", "category": None, "explanation": refusal} if reason == "refusal" else None
    end = {"stop_reason": reason, "stop_sequence": None}
    return end if details is None else {**end, "stop_details": details}


def _stop_reason(reply: ChatReply) -> str:
    """Return the reason why the answer ends. Some servers call an answer with tool calls finished ("stop")."""
    if refusal_of(reply.message) is not None:
        return "refusal"
    reason = reply.finish_reason
    if reason in OWN_STOP_REASONS:
        return str(reason)
    if reply.tool_calls and reason not in ("length", "content_filter"):
        return "tool_use"
    return STOP_REASONS.get(reason or "stop", "end_turn")


def _blocks(message: Message) -> list[Block]:
    """Return a message as blocks: its own, or its reasoning, its text or refusal, and its tool calls."""
    own = message.get("content_blocks")
    if isinstance(own, list) and own and not any(map(block_fault, own)):
        return own
    thought = text_of(message.get("reasoning_content"))
    thoughts = [{"type": "thinking", "thinking": thought, "signature": ""}] if thought else []
    text = text_of(message.get("content")) or refusal_of(message)
    texts = [{"type": "text", "text": text}] if text else []
    return [*thoughts, *texts, *map(_tool_use, message.get("tool_calls") or ())]


def _tool_use(call: Mapping[str, Any]) -> Block:
    function = call.get("function") or {}
    arguments = _arguments(function.get("arguments") or "{}")
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": arguments}


def _arguments(text: str) -> dict[str, Any]:
    try:
        arguments = json.loads(text, parse_constant=_refuse_number, parse_float=_finite)
    except (ValueError, RecursionError):
        arguments = None
    return arguments if isinstance(arguments, dict) else {INVALID_JSON: text}


def _refuse_number(literal: str) -> NoReturn:
    raise ValueError(f"{literal} is not JSON")


def _finite(literal: str) -> float:
    number = float(literal)
    return number if abs(number) != float("inf") else _refuse_number(literal)


def _streamed(block: Block) -> tuple[Block, Iterator[dict[str, Any]]]:
    """Return a block as it begins, and its deltas. A block of a kind that is not streamed begins whole."""
    match block["type"]:
        case "text":
            citations = block.get("citations") or []
            return {**block, "text": "", **({"citations": []} if citations else {})}, _text_deltas(
                block["text"], citations
            )
        case "thinking" if isinstance(block.get("thinking"), str):
            return {**block, "thinking": "", "signature": ""}, _thinking_deltas(block)
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            written = json.dumps(block.get("input") or {})
            return {**block, "input": {}}, (
                {"type": "input_json_delta", "partial_json": each} for each in pieces(written)
            )
        case _:
            return block, iter(())


def _text_deltas(text: str, citations: Sequence[Any]) -> Iterator[dict[str, Any]]:
    yield from ({"type": "text_delta", "text": piece} for piece in pieces(text))
    yield from ({"type": "citations_delta", "citation": citation} for citation in citations)


def _thinking_deltas(block: Block) -> Iterator[dict[str, Any]]:
    yield from ({"type": "thinking_delta", "thinking": piece} for piece in pieces(block["thinking"]))
    if block.get("signature"):
        yield {"type": "signature_delta", "signature": block["signature"]}


def _usage(usage: Usage | None) -> dict[str, Any]:
    """Return the tokens, 0 if they are unknown: the API always has them. Its input excludes what the cache has."""
    known = usage or Usage(0, 0)
    cached, written = known.cached_input_tokens, known.cache_write_tokens
    counts = {
        "input_tokens": max(0, known.input_tokens - (cached or 0) - (written or 0)),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": cached,
        "output_tokens": known.output_tokens,
    }
    thought = known.reasoning_tokens
    return {
        **shapes.given(counts),
        **({} if thought is None else {"output_tokens_details": {"thinking_tokens": thought}}),
    }


# -- errors -----------------------------------------------------------------------------------------------


def write_error(error: ApiError) -> dict[str, Any]:
    kind = ERROR_TYPES.get(error.status, "api_error" if error.is_of_server else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}
