"""Anthropic's Messages as JSON: writes chat messages as the body of a request, reads the reply from an answer.

Our messages have the shape of OpenAI's chat completions. The differences: leading system messages become a field of
their own. Successive turns of one role are merged, so tool results join the user's next turn. Text of white space only
is left out, because the API refuses it. Blocks of an answer that chat completions cannot represent (thinking and its
signature, citations, tools that the server ran) stay on our message as `content_blocks` and are sent back unchanged.

Source: the API reference at docs.anthropic.com, and the types of the official client.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.error_bodies import error_in
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import (
    check_size,
    count,
    count_in,
    encoded,
    function_of,
    json_object,
    label,
    role_fault,
    shape,
    string,
)
from pytest_osmosis.models.targets import ModelTarget

Block = dict[str, Any]
PATH = "/messages"

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
TOOL_CHOICES: Mapping[str, str] = {"auto": "auto", "none": "none", "required": "any"}

DATA_URL = re.compile(r"data:([^;,]+)(?:;[^;,]+)*;base64,(.*)", re.DOTALL)


# -- requests ---------------------------------------------------------------------------------------------


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """Return the body of a request.

    Raises `TypeError` or `ValueError` for messages, tools or sampling that JSON or the API cannot represent.
    """
    system, turns = _conversation(request.messages)
    body: dict[str, Any] = {"model": target.model, "messages": turns}
    if system:
        body["system"] = system
    if request.tools:
        body["tools"] = [_tool(tool) for tool in request.tools]
    if request.seed is not None and target.seed_key is not None:
        body[target.seed_key] = request.seed
    return encoded({**body, **_sampling(request.sampling)})


def _sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling under the names of this API. Unknown names stay, except OpenAI's hint of a style."""
    sampling = dict(sampling)
    sampling.pop("verbosity", None)  # OpenAI Agents SDK sends it unasked
    renamed: dict[str, Any] = {"max_tokens": DEFAULT_MAX_TOKENS}
    for name in ("max_completion_tokens", "max_tokens"):
        if name in sampling:
            renamed["max_tokens"] = sampling.pop(name)
    if "stop" in sampling:
        stop = sampling.pop("stop")
        renamed["stop_sequences"] = [stop] if isinstance(stop, str) else stop
    choice, parallel = sampling.pop("tool_choice", None), sampling.pop("parallel_tool_calls", None)
    user = sampling.pop("user", None)
    if user is not None:
        renamed["metadata"] = {"user_id": user}
    output = _output_config(sampling)
    if output:
        renamed["output_config"] = output
    if choice is not None or parallel is False:
        renamed["tool_choice"] = _tool_choice("auto" if choice is None else choice, parallel)
    return {**renamed, **sampling}


def _output_config(sampling: dict[str, Any]) -> dict[str, Any]:
    """Remove the effort and the schema of an answer, and return them as this API has them."""
    given = sampling.pop("output_config", None)
    output = dict(given) if isinstance(given, Mapping) else {}
    effort = sampling.pop("reasoning_effort", None)
    if effort is not None:
        output["effort"] = EFFORTS.get(effort, effort) if isinstance(effort, str) else effort
    wanted = sampling.get("response_format")
    kind = wanted.get("type") if isinstance(wanted, Mapping) else None
    if kind in ("text", "json_schema"):
        del sampling["response_format"]
    if isinstance(wanted, Mapping) and kind == "json_schema":
        schema = wanted.get("json_schema")
        output["format"] = {"type": kind, "schema": schema.get("schema") if isinstance(schema, Mapping) else None}
    return output


def _tool_choice(choice: Any, parallel: bool | None) -> Any:
    """Return this API's `tool_choice` for that of either API. `parallel` False allows one call per answer."""
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
    kept = {name: function[name] for name in ("description", "strict") if function.get(name) is not None}
    rest = {name: value for name, value in tool.items() if name not in ("type", "function")}
    return {"name": function.get("name"), **kept, "input_schema": schema, **rest}


def _conversation(messages: Sequence[Message]) -> tuple[str | list[Block], list[Message]]:
    """Return the system prompt, or "", and the turns that follow it."""
    for position, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TypeError(f"messages[{position}] must be an object with a role, got {type(message).__name__}")
    leading = 0
    while leading < len(messages) and _role(messages[leading]) == "system":
        leading += 1
    system = [block for message in messages[:leading] for block in _blocks(message.get("content"))]
    return _plain(system), _turns(messages[leading:])


def _plain(blocks: list[Block]) -> str | list[Block]:
    """Return a single plain text block as a string, which every server accepts, and other blocks unchanged."""
    if not blocks:
        return ""
    only = blocks[0] if len(blocks) == 1 else {}
    return str(only["text"]) if only.keys() == {"type", "text"} else blocks


def _turns(messages: Sequence[Message]) -> list[Message]:
    """Return the messages as turns. Successive turns of one role are merged, and empty ones left out."""
    merged: list[tuple[Any, list[Block]]] = []
    for message in messages:
        role, blocks = _role(message), _message_blocks(message)
        if not blocks:
            continue
        if merged and merged[-1][0] == role:
            merged[-1][1].extend(blocks)
        else:
            merged.append((role, blocks))
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
    text = function.get("arguments") or "{}"
    try:
        arguments = json.loads(text) if isinstance(text, str) else text
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        raise ValueError(f"tool call {function.get('name')!r}: arguments must be a JSON object, got {text!r}")
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": arguments}


def _tool_result(message: Message) -> Block:
    content = _plain(_blocks(message.get("content")))
    marks = {name: message[name] for name in ("is_error", "cache_control") if message.get(name)}
    result = {"type": "tool_result", "tool_use_id": message.get("tool_call_id"), **marks}
    return {**result, "content": content} if content else result


def _blocks(content: object) -> list[Block]:
    """Return the content of a message as blocks, without those whose text is only white space."""
    if content is None:
        return []
    parts = content if isinstance(content, list) else [content]
    blocks = [_block(part) for part in parts]
    return [block for block in blocks if block.get("type") != "text" or str(block.get("text") or "").strip()]


def _block(part: object) -> Block:
    """Return the block for a part of content: text, an image, or a block in the shape of this API."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if not isinstance(part, dict):
        raise TypeError(f"a part of content must be a string or an object, got {type(part).__name__}")
    if part.get("type") == "image_url":
        rest = {name: value for name, value in part.items() if name not in ("type", "image_url")}
        return {"type": "image", "source": _image_source(part.get("image_url")), **rest}
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
    """Return the reply in the body of a 2xx answer.

    Raises `ModelError`: boundary "provider" if the body cannot be read, has other types or has too large a message,
    "model" if it has no message, and that of the error if the body reports one.
    """
    body = json_object(status, text, failures)
    blocks = body.get("content")
    if blocks is None:
        raise failures.no_answer(status, "content = null" if "content" in body else "no content", body)
    if blocks == [] and error_in(body) is not None:
        raise failures.no_answer(status, "content = []", body)
    if not isinstance(blocks, list):
        raise failures.misshapen(status, f"content = {shape(blocks)}", body)
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
    """Return True for a block that a chat message can represent."""
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
    fresh, output = count_in(data, "input_tokens"), count_in(data, "output_tokens")
    if fresh is None or output is None or not isinstance(data, Mapping):
        return None
    read, written = count(data.get("cache_read_input_tokens")), count(data.get("cache_creation_input_tokens"))
    return Usage(
        fresh + (read or 0) + (written or 0),
        output,
        cached_input_tokens=read,
        reasoning_tokens=count_in(data.get("output_tokens_details"), "thinking_tokens"),
        cache_write_tokens=written,
    )
