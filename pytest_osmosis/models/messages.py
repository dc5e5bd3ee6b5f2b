"""Anthropic's Messages as JSON: writes chat messages as the body of a request, reads the reply from an answer.

Leading system messages become a field of their own. Successive turns of one role are merged, so tool results join the
user's next turn. Text of white space only is left out, because the API refuses it.

What chat completions cannot represent stays on our messages, and goes back unchanged to a model with this API: thinking
and its signature, citations and tools that the server ran as `content_blocks`, `is_error` on a tool's message, and
`cache_control` on a part, a tool or a tool's message.

Source: the API reference at docs.anthropic.com, and the types of the official client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import groupby, takewhile
from typing import Any

from msgspec.structs import replace

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.failures import Failures, error_in, type_of_error
from pytest_osmosis.models.json_bodies import (
    AnswerLabel,
    ApiError,
    ServedRequest,
    answer_list,
    check_size,
    encoded,
    event,
    function_of,
    given,
    json_object,
    label,
    refuse,
    role_fault,
    shape,
    string,
    take_messages,
    take_object,
    take_seed,
    take_tools,
    usage_in,
    without,
)
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.text.chat_messages import refusal_of, text_of

Block = dict[str, Any]

PATH = "/v1/messages"
DEFAULT_MAX_TOKENS = 4096  # the API requires a bound in every request

FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
"""The finish_reason for each stop_reason. Others keep their name."""

CHAT_BLOCKS = frozenset({"text", "tool_use"})
"""The blocks that a chat message can represent, unless they have citations or a mark for the cache."""
EFFORTS: Mapping[str, str] = {"none": "low", "minimal": "low"}
"""This API's least effort, for those of OpenAI that are less."""
RENAMED = (
    *("max_tokens", "max_completion_tokens", "stop", "user", "output_config", "reasoning_effort", "tool_choice"),
    *("parallel_tool_calls", "verbosity"),  # OpenAI Agents SDK sends `verbosity` unasked
)
"""The keys of sampling that this API has under another name or in another shape, or lacks."""
TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}

DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)


# -- requests ---------------------------------------------------------------------------------------------


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    system, turns = _conversation(request.messages)
    body: dict[str, Any] = {"model": target.model, "messages": turns}
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    return encoded({**body, **target.seed_field(request.seed), **_sampling(request.sampling)})


def _sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling under the names of this API. Unknown names stay, except OpenAI's hint of a style."""
    stop, user, wanted = sampling.get("stop"), sampling.get("user"), sampling.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    schema = wanted.get("json_schema") if isinstance(wanted, Mapping) and kind == "json_schema" else None
    renamed = {
        "max_tokens": sampling.get("max_tokens", sampling.get("max_completion_tokens", DEFAULT_MAX_TOKENS)),
        "stop_sequences": [stop] if isinstance(stop, str) else stop,
        "metadata": None if user is None else {"user_id": user},
        "output_config": _output_config(sampling, schema) or None,
        "tool_choice": _tool_choice(sampling.get("tool_choice"), sampling.get("parallel_tool_calls")),
    }
    has_place = kind == "text" or isinstance(schema, Mapping)
    return {**given(renamed), **without(sampling, (*RENAMED, "response_format") if has_place else RENAMED)}


def _output_config(sampling: Mapping[str, Any], schema: object) -> dict[str, Any]:
    """Return the effort and the schema of an answer as this API has them."""
    own, effort = sampling.get("output_config"), sampling.get("reasoning_effort")
    output = dict(own) if isinstance(own, Mapping) else {}
    if effort is not None:
        output["effort"] = EFFORTS.get(effort, effort) if isinstance(effort, str) else effort
    if isinstance(schema, Mapping):
        output["format"] = {"type": "json_schema", "schema": schema.get("schema")}
    return output


def _tool_choice(choice: Any, parallel: bool | None) -> Any:
    """Return either API's `tool_choice` in this API's form. `parallel` False allows one call per answer."""
    if choice is None and parallel is False:
        choice = "auto"
    if isinstance(choice, str):
        choice = {"type": TOOL_CHOICES.get(choice, choice)}
    elif isinstance(choice, Mapping) and isinstance(choice.get("function"), Mapping):
        choice = {"type": "tool", "name": choice["function"].get("name")}
    if parallel is False and isinstance(choice, Mapping) and choice.get("type") != "none":
        return {**choice, "disable_parallel_tool_use": True}
    return choice


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a function as a tool of this API, and any other tool unchanged."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    kept = given(function, ("description", "strict"))
    return {"name": function.get("name"), **kept, "input_schema": schema, **without(tool, ("type", "function"))}


def _conversation(messages: Sequence[Message]) -> tuple[str | list[Block], list[Message]]:
    """Return the system prompt, or "", and the turns that follow it."""
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{position}] must be an object with a role, got {type(message).__name__}")
    leading = list(takewhile(lambda message: _role(message) == "system", messages))
    system = [block for message in leading for block in _blocks(message.get("content"))]
    return _plain(system), _turns(messages[len(leading) :])


def _plain(blocks: list[Block]) -> str | list[Block]:
    """Return a single plain text block as a string, which every server accepts, and other blocks unchanged."""
    if not blocks:
        return ""
    only = blocks[0] if len(blocks) == 1 else {}
    return str(only["text"]) if only.keys() == {"type", "text"} else blocks


def _turns(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as turns. Successive turns of one role are merged, and empty ones left out."""
    turns = [(_role(message), _message_blocks(message)) for message in messages]
    successive = groupby((turn for turn in turns if turn[1]), key=lambda turn: turn[0])
    merged = [(role, [block for _, blocks in same for block in blocks]) for role, same in successive]
    return [{"role": role, "content": _plain(blocks)} for role, blocks in merged]


def _role(message: Message) -> Any:
    role = message.get("role")
    return {"developer": "system", "tool": "user"}.get(role, role) if isinstance(role, str) else role


def _message_blocks(message: Message) -> list[Block]:
    if message.get("role") == "tool":
        return [_tool_result(message)]
    if message.get("role") != "assistant":
        return _blocks(message.get("content"))
    if isinstance(message.get("content_blocks"), list):
        return list(message["content_blocks"])
    texts = _blocks(message.get("content")) or _blocks(message.get("refusal"))
    return [*texts, *(_tool_use(call) for call in message.get("tool_calls") or ())]


def _tool_use(call: Any) -> Block:
    function = function_of(call)
    name, written = function.get("name"), function.get("arguments") or "{}"
    arguments = _arguments(written)
    if arguments is None:
        raise ValueError(f"tool call {name!r}: arguments must be a JSON object, got {written!r}")
    return {"type": "tool_use", "id": call.get("id"), "name": name, "input": arguments}


def _arguments(written: object) -> dict[str, Any] | None:
    """Return the arguments of a call, which most write as JSON; None unless they are an object of strict JSON."""
    with suppress(ValueError, RecursionError):
        arguments = json.loads(written) if isinstance(written, str) else written
        if isinstance(arguments, dict):
            encoded(arguments)
            return arguments
    return None


def _tool_result(message: Message) -> Block:
    content = _plain(_blocks(message.get("content")))
    result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), **_marks(message)}
    return {**result, "content": content} if content else result


def _marks(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return the marks of a tool's result, which have one name in chat messages and in blocks."""
    return {name: result[name] for name in ("is_error", "cache_control") if result.get(name)}


def _blocks(content: object) -> list[Block]:
    """Return the content of a message as blocks, without those whose text is only white space."""
    blocks = [_block(part) for part in _parts(content)]
    return [block for block in blocks if block.get("type") != "text" or str(block.get("text") or "").strip()]


def _parts(content: object) -> list[Any]:
    return content if isinstance(content, list) else [] if content is None else [content]


def _block(part: object) -> Block:
    """Return the block for a part of content: text, an image, or a block in the shape of this API."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise TypeError(f"a part of content must be a string or an object, got {type(part).__name__}")
    if part.get("type") == "image_url":
        source = _image_source(part.get("image_url"))
        return {"type": "image", "source": source, **without(part, ("type", "image_url"))}
    return part


def _image_source(image: object) -> Block:
    url = image.get("url") if isinstance(image, dict) else image
    if not isinstance(url, str):
        raise ValueError(f"image_url must have a url, got {shape(url)}")
    if not url.startswith("data:"):
        return {"type": "url", "url": url}
    match = DATA_URL.fullmatch(url)
    if match is None:
        raise ValueError(f'a data: URL must be as in "data:image/png;base64,...", got "{url[:40]}"')
    return {"type": "base64", "media_type": match[1], "data": match[2]}


# -- replies ----------------------------------------------------------------------------------------------


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    body = json_object(status, text, failures)
    blocks = answer_list(body, "content", status, failures)
    if blocks == [] and error_in(body) is not None:
        raise failures.no_answer(status, "content = []", body)
    fault = role_fault(body.get("role")) or next(filter(None, map(block_fault, blocks)), None)
    if fault is not None:
        raise failures.misshapen(status, fault, body)
    check_size(status, blocks, target, failures)
    reason = label(body.get("stop_reason"))
    return ChatReply(
        message=_refused(blocks, body) if reason == "refusal" else assistant_message(blocks),
        finish_reason=None if reason is None else FINISH_REASONS.get(reason, reason),
        usage=_usage(body.get("usage")),
        model=label(body.get("model")),
    )


def block_fault(block: object) -> str | None:
    """Return the part of a block that nobody could read, in words, or None."""
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        return "content that is not a list of objects with a type"
    if block["type"] == "text" and not isinstance(block.get("text"), str):
        return f"text = {shape(block.get('text'))}"
    wanted = (("id", str), ("name", str), ("input", dict))
    if block["type"] == "tool_use" and not all(isinstance(block.get(key), kind) for key, kind in wanted):
        return "a tool_use without id, name or input"
    return None


def assistant_message(blocks: list[Block]) -> Message:
    """Return the blocks of an assistant's turn as a chat message."""
    texts = _texts(blocks, "text")
    calls = [_tool_call(block) for block in blocks if block.get("type") == "tool_use"]
    message: Message = {"role": "assistant", "content": None if calls and not texts else "".join(texts)}
    if calls:
        message["tool_calls"] = calls
    thoughts = _texts(blocks, "thinking")
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if not all(map(_is_plain, blocks)):
        message["content_blocks"] = blocks
    return message


def _is_plain(block: Block) -> bool:
    return block.get("type") in CHAT_BLOCKS and not block.get("citations") and not block.get("cache_control")


def _texts(blocks: Iterable[Block], kind: str) -> list[str]:
    texts = (string(block.get(kind)) for block in blocks if block.get("type") == kind)
    return [text for text in texts if text]


def _tool_call(block: Block) -> dict[str, Any]:
    function = {"name": block["name"], "arguments": json.dumps(block["input"])}
    return {"id": block["id"], "type": "function", "function": function}


def _refused(blocks: list[Block], body: Mapping[str, Any]) -> Message:
    """Return a refusal in the shape of chat completions: no content, and the text in `refusal`."""
    details = body.get("stop_details")
    explanation = string(details.get("explanation")) if isinstance(details, Mapping) else None
    text = "".join(_texts(blocks, "text")) or explanation or "the model refused and did not say why"
    return {"role": "assistant", "content": None, "refusal": text}


def _usage(data: object) -> Usage | None:
    """Return the tokens. The API's count of input tokens excludes those read from and written to the cache."""
    cached, written = ("cache_read_input_tokens",), ("cache_creation_input_tokens",)
    usage = usage_in(data, cached=cached, reasoning=("output_tokens_details", "thinking_tokens"), written=written)
    if usage is None:
        return None
    of_cache = (usage.cached_input_tokens or 0) + (usage.cache_write_tokens or 0)
    return replace(usage, input_tokens=usage.input_tokens + of_cache)


STOP_REASONS: Mapping[str, str] = {finish: stop for stop, finish in reversed([*FINISH_REASONS.items()])}
"""The stop_reason for each finish_reason: the first of several. Those that the API has itself keep their name."""
OWN_STOP_REASONS = frozenset({"pause_turn"})

ERROR_TYPES: Mapping[int, str] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    529: "overloaded_error",
}

CHAT_CHOICES: Mapping[str, str] = {theirs: ours for ours, theirs in TOOL_CHOICES.items()}

INVALID_JSON = "INVALID_JSON"
"""The key under which a tool's input carries arguments that are not a JSON object. Anthropic's guide to fine-grained
tool streaming names it."""


# -- requests to a server ----------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse."""
    rest = without(body, {"model"})
    if rest.get("max_tokens") is None:
        raise refuse("max_tokens: field required")
    turns = take_messages(rest)
    tools = take_tools(rest, '{"name": ..., "input_schema": {...}}')
    seed, stream = take_seed(rest), bool(rest.pop("stream", None))
    conversation = [
        *({"role": "system", "content": _plain([_part(block)])} for block in _parts(rest.pop("system", None) or None)),
        *(message for turn in turns for message in _chat_messages(turn)),
    ]
    return ServedRequest(
        ChatRequest(conversation, [_function(tool) for tool in tools], _sampling_in(rest), seed), stream
    )


def _sampling_in(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other keys under the names of chat completions. Unknown names stay."""
    sampling = given(rest)
    if "stop_sequences" in sampling:
        sampling["stop"] = sampling.pop("stop_sequences")
    metadata = take_object(sampling, "metadata")
    if metadata.keys() == {"user_id"} and metadata["user_id"] is not None:
        sampling["user"] = metadata["user_id"]
    elif given(metadata):
        sampling["metadata"] = metadata
    sampling |= _output(sampling)
    choice = take_object(sampling, "tool_choice")
    if choice:
        sampling["tool_choice"] = _choice_in(choice)
        if choice.get("disable_parallel_tool_use"):
            sampling["parallel_tool_calls"] = False
    return sampling


def _output(sampling: dict[str, Any]) -> dict[str, Any]:
    """Remove the effort and the schema of an answer, and return them as chat completions have them."""
    output = take_object(sampling, "output_config")
    found: dict[str, Any] = {}
    effort, wanted = output.pop("effort", None), output.get("format")
    if effort is not None:
        found["reasoning_effort"] = effort
    if isinstance(wanted, dict) and wanted.get("type") == "json_schema":
        del output["format"]
        schema = {"name": "answer", "schema": wanted.get("schema"), "strict": True}
        found["response_format"] = {"type": "json_schema", "json_schema": schema}
    return {**found, "output_config": output} if given(output) else found


def _choice_in(choice: Mapping[str, Any]) -> Any:
    kind = choice.get("type")
    if kind == "tool":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if not isinstance(kind, str) or kind not in CHAT_CHOICES:
        raise refuse(f'tool_choice must have a type: "auto", "any", "tool" or "none", got {kind!r}')
    return CHAT_CHOICES[kind]


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool of the client as a function, and one that the API's own server runs unchanged."""
    if "input_schema" not in tool:
        return dict(tool)
    names = {"name": "name", "description": "description", "input_schema": "parameters", "strict": "strict"}
    function = {ours: tool[name] for name, ours in names.items() if tool.get(name) is not None}
    return {"type": "function", "function": function, **given(without(tool, ("type", *names)))}


def _chat_messages(turn: Message) -> list[Message]:
    """Return one turn as chat messages: tool results first, then the turn itself, if it holds anything else."""
    content = turn["content"]
    if isinstance(content, str):
        return [{"role": turn["role"], "content": content}]
    blocks = [_part(block) if isinstance(block, str) else block for block in content]
    if fault := next(filter(None, map(block_fault, blocks)), None):
        raise refuse(fault)
    if turn["role"] == "assistant":
        return [assistant_message(blocks)]
    results = [_tool_message(block) for block in blocks if block["type"] == "tool_result"]
    said = [block for block in blocks if block["type"] != "tool_result"]
    if results and not said:
        return results
    return [*results, {"role": turn["role"], "content": _plain([*map(_part, said)])}]


def _tool_message(block: Block) -> Message:
    content = _plain([*map(_part, _parts(block.get("content")))])
    return {"role": "tool", "tool_call_id": block.get("tool_use_id"), "content": content, **_marks(block)}


def _part(block: Any) -> dict[str, Any]:
    """Return the part for a block. One that chat completions do not have stays as it is."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    url = _image_url(block.get("source")) if block.get("type") == "image" else None
    if url is None:
        return dict(block)
    return {"type": "image_url", "image_url": {"url": url}, **given(without(block, ("type", "source")))}


def _image_url(source: Any) -> str | None:
    match source:
        case {"type": "url", "url": str(url)}:
            return url
        case {"type": "base64"}:
            return f"data:{source.get('media_type')};base64,{source.get('data')}"
    return None


# -- replies of a server -----------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    content, usage = _blocks_of(reply.message), _usage_fields(reply.usage)
    return {**_head(reply, label), "content": content, **_end(reply), "usage": usage}


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of a reply: its blocks, then its stop_reason. The API always sends the tokens."""
    usage = _usage_fields(reply.usage)
    begun = {**_head(reply, label), "content": [], "stop_reason": None, "stop_sequence": None}
    yield _event("message_start", message={**begun, "usage": {**usage, "output_tokens": 0}})
    for index, block in enumerate(_blocks_of(reply.message)):
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
    model = reply.model or label.model
    return {"id": f"msg_{label.identity}", "type": "message", "role": "assistant", "model": model}


def _end(reply: ChatReply) -> dict[str, Any]:
    end: dict[str, Any] = {"stop_reason": _stop_reason(reply), "stop_sequence": None}
    if end["stop_reason"] == "refusal":
        explanation = refusal_of(reply.message)
        end["stop_details"] = {"type": "refusal", "category": None, "explanation": explanation}
    return end


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


def _blocks_of(message: Message) -> list[Block]:
    own = message.get("content_blocks")
    if isinstance(own, list) and own and not any(map(block_fault, own)):
        return own
    thought = text_of(message.get("reasoning_content"))
    thoughts = [{"type": "thinking", "thinking": thought, "signature": ""}] if thought else []
    text = text_of(message.get("content")) or refusal_of(message)
    texts = [{"type": "text", "text": text}] if text else []
    return [*thoughts, *texts, *map(_block_of_call, message.get("tool_calls") or ())]


def _block_of_call(call: Mapping[str, Any]) -> Block:
    function = call.get("function") or {}
    written = function.get("arguments") or "{}"
    arguments = _arguments(written)
    fields = {INVALID_JSON: written} if arguments is None else arguments
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": fields}


def _streamed(block: Block) -> tuple[Block, list[dict[str, Any]]]:
    """Return a block as it begins, and its deltas. A block of a kind that is not streamed begins whole."""
    match block["type"]:
        case "text":
            said = {"type": "text_delta", "text": block["text"]}
            if not (citations := block.get("citations")):
                return {**block, "text": ""}, [said]
            cited = [{"type": "citations_delta", "citation": each} for each in citations]
            return {**block, "text": "", "citations": []}, [said, *cited]
        case "thinking" if isinstance(block.get("thinking"), str):
            thought = {"type": "thinking_delta", "thinking": block["thinking"]}
            signature = block.get("signature")
            signed = [{"type": "signature_delta", "signature": signature}] if signature else []
            return {**block, "thinking": "", "signature": ""}, [thought, *signed]
        case "tool_use" | "server_tool_use" | "mcp_tool_use":
            written = json.dumps(block.get("input") or {})
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": written}]
    return block, []


def _usage_fields(usage: Usage | None) -> dict[str, Any]:
    """Return the tokens, 0 if they are unknown: the API always has them. Its input excludes what the cache has."""
    known = usage or Usage(0, 0)
    cached, written, thought = known.cached_input_tokens, known.cache_write_tokens, known.reasoning_tokens
    return given(
        {
            "input_tokens": max(0, known.input_tokens - (cached or 0) - (written or 0)),
            "cache_creation_input_tokens": written,
            "cache_read_input_tokens": cached,
            "output_tokens": known.output_tokens,
            "output_tokens_details": None if thought is None else {"thinking_tokens": thought},
        }
    )


# -- errors of a server ------------------------------------------------------------------------------------


def write_error(error: ApiError) -> dict[str, Any]:
    kind = type_of_error(error.status, ERROR_TYPES, "api_error")
    return {"type": "error", "error": {"type": kind, "message": str(error)}}
