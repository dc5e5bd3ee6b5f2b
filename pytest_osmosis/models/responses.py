"""OpenAI's Responses as JSON: writes chat messages as the body of a request, reads the reply from an answer.

Nothing is stored, so each request holds the whole conversation, and the model's reasoning travels with it, encrypted.
An answer that chat completions cannot represent (reasoning, the phase of a message) stays on our message as
`provider_items`, and goes back unchanged unless somebody edited the message.

A server of ours makes one message of the items of an answer. A model that is asked by this API gets the body of a
request as it is (`native`). The `content_blocks` of a model with Anthropic's API travel as the `encrypted_content` of a
reasoning item. Only functions can be called.

Source: the API reference at platform.openai.com, and the types of the official client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions
from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Model, Usage
from pytest_osmosis.models.failures import OF_REQUESTS, Failures, error_in
from pytest_osmosis.models.json_bodies import (
    AnswerLabel,
    ServedRequest,
    answer_list,
    check_size,
    encoded,
    event,
    function_of,
    given,
    json_object,
    label,
    read,
    refuse,
    role_fault,
    string,
    take_object,
    take_seed,
    take_tools,
    usage_in,
    without,
)
from pytest_osmosis.models.providers import Api
from pytest_osmosis.models.targets import SWITCH, ModelTarget, asks_responses, chat_only
from pytest_osmosis.text.chat_messages import refusal_of, text_of

Item = dict[str, Any]

PATH = "/responses"
REASONING = "reasoning.encrypted_content"
OBJECTS = ("reasoning", "text")
OF_FUNCTIONS = ("name", "description", "parameters", "strict")
"""The fields that describe a function, which are in another place in chat completions."""
RENAMED: Mapping[str, str] = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
NESTED = {name: path.split(".") for path, name in OF_REQUESTS.items() if "." in path}
"""The object and its key of this API, for keys of chat completions."""
INCOMPLETE: Mapping[str, str] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""The finish_reason for the reason why a response is incomplete. Others keep their name."""


class ResponsesModel:
    """A `Model` that is asked by `responses`, and by `chat` if that is there and a request has keys that only it takes.

    It learns from the first refusal that a model does not reason, and then asks for no reasoning.
    """

    def __init__(self, api: Api, responses: Model, chat: Model | None) -> None:
        self._api = api
        self._responses = responses
        self._chat = chat
        self._reasons = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `ModelError` for tools together with a key that only chat completions take."""
        if self._chat is not None and not asks_responses(self._api, request.keys):
            if request.tools:
                missing = lacks(chat_only(request.keys))
                text = f"no request was sent: tools are offered to this model by OpenAI's Responses API, {missing}"
                raise ModelError(text, systemic="until_success")
            return await self._chat.chat(request)
        try:
            return await self._responses.chat(request if self._reasons else _without_reasoning(request))
        except ModelError as error:
            if not self._reasons or error.status != 400 or "encrypted content" not in str(error).lower():
                raise
            self._reasons = False
            return await self._responses.chat(_without_reasoning(request))

    async def close(self) -> None:
        await self._responses.close()
        if self._chat is not None:
            await self._chat.close()


def _without_reasoning(request: ChatRequest) -> ChatRequest:
    return replace(request, sampling={"include": [], **request.sampling})


def lacks(keys: Sequence[str]) -> str:
    """Return that the API lacks keys, and what to do."""
    return f"which has no {' and no '.join(keys)}: leave it out, or {SWITCH}"


# -- requests ---------------------------------------------------------------------------------------------


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """Return the body of a request. One that came in the form of this API is passed on.

    Raises `ModelError` for a key that only chat completions have: whoever sends it does so in each run.
    """
    body: dict[str, Any] = {"store": False, "include": [REASONING], **_sampling(request.sampling)}
    if request.native is None:
        body["input"] = [item for message in request.messages for item in _items(message)]
        if request.tools:
            body["tools"] = [_tool(tool) for tool in request.tools]
    else:
        include = [*body["include"], *(request.native.get("include") or ())]
        objects = {name: {**body[name], **(request.native.get(name) or {})} for name in OBJECTS if name in body}
        body = {**body, **request.native, **objects, "include": list(dict.fromkeys(include)), "store": False}
    return encoded({**body, "model": target.model})


def _sampling(sampling: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sampling under the names of this API, and unknown names. Raises `ModelError` for one that it lacks."""
    lacking = chat_only(sampling)
    if lacking:
        text = f"no request was sent: the model is asked by OpenAI's Responses API, {lacks(lacking)}"
        raise ModelError(text, systemic="until_success")
    body: dict[str, Any] = {}
    for name, value in sampling.items():
        if name in NESTED:
            place, key = NESTED[name]
            body[place] = {**(body.get(place) or {}), key: value}
        elif name == "response_format":
            schema = value.get("json_schema") if isinstance(value, Mapping) else None
            wanted = {"type": "json_schema", **schema} if isinstance(schema, Mapping) else value
            body["text"] = {**(body.get("text") or {}), "format": wanted}
        elif name in OBJECTS and isinstance(value, Mapping):
            body[name] = {**(body.get(name) or {}), **value}
        else:
            body[RENAMED.get(name, name)] = _tool_choice(value) if name == "tool_choice" else value
    return body


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(choice.get("function"), Mapping):
        return {"type": "function", **choice["function"]}
    return choice


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a function as a tool of this API, strict only if it says so, and any other tool unchanged."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    bare = {"type": "function", "parameters": {"type": "object", "properties": {}}, "strict": False}
    return {**bare, **given(function, OF_FUNCTIONS)}


def _items(message: Message) -> list[Item]:
    if not isinstance(message, Mapping):
        raise TypeError(f"a message must be an object with a role, got {type(message).__name__}")
    role, content = message.get("role"), message.get("content")
    if role == "tool":
        return [{"type": "function_call_output", "call_id": message.get("tool_call_id"), "output": _content(content)}]
    if role != "assistant":
        return [{"role": role, "content": _content(content)}]
    if isinstance(message.get(ITEMS), list) and _is_unedited(message):
        return [item for item in message[ITEMS] if not _is_forgotten(item)]
    text = text_of(content) or refusal_of(message)
    said: list[Item] = [{"role": "assistant", "content": text}] if text else []
    return [*said, *map(_call_item, message.get("tool_calls") or ())]


def _is_unedited(message: Message) -> bool:
    return not any(map(item_fault, message[ITEMS])) and _said(message_of(message[ITEMS])) == _said(message)


def _said(message: Message) -> tuple[object, ...]:
    return text_of(message.get("content")), refusal_of(message), message.get("tool_calls") or []


def _is_forgotten(item: Item) -> bool:
    """Return True for reasoning that is known by its id alone, which the service did not store."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content") and not item.get("content")


def _call_item(call: Any) -> Item:
    function = function_of(call)
    named = {"name": function.get("name"), "arguments": function.get("arguments") or "{}"}
    return {"type": "function_call", "call_id": call.get("id"), **named}


def _content(content: object) -> Any:
    if not isinstance(content, list):
        return "" if content is None else content
    return [_part(part) for part in content]


def _part(part: Any) -> Any:
    if isinstance(part, str):
        return {"type": "input_text", "text": part}
    if not isinstance(part, Mapping):
        raise TypeError(f"a part of content must be a string or an object, got {type(part).__name__}")
    match part.get("type"):
        case "text":
            return {"type": "input_text", "text": part.get("text")}
        case "image_url":
            image = part.get("image_url")
            image = image if isinstance(image, Mapping) else {"url": image}
            return {"type": "input_image", "image_url": image.get("url"), **given(image, ("detail",))}
        case "file" if isinstance(part.get("file"), Mapping):
            return {"type": "input_file", **part["file"]}
    return part


# -- replies ----------------------------------------------------------------------------------------------


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    body = json_object(status, text, failures)
    ended = body.get("status")
    if error_in(body) is not None:
        raise failures.no_answer(status, f'status "{ended}"', body)
    if ended not in (None, "completed", "incomplete"):
        raise failures.misshapen(status, f'status "{label(ended)}" in place of an answer', body)
    output = answer_list(body, "output", status, failures)
    fault = next(filter(None, map(item_fault, output)), None)
    if fault is not None:
        raise failures.misshapen(status, fault, body)
    check_size(status, output, target, failures)
    message = message_of(output)
    if not all(map(_is_plain, output)):
        message[ITEMS] = output
    return ChatReply(message, _finish_reason(body, message), usage_of(body.get("usage")), label(body.get("model")))


def _finish_reason(body: Mapping[str, Any], message: Message) -> str:
    details = body.get("incomplete_details")
    reason = label(details.get("reason")) if isinstance(details, Mapping) else None
    if body.get("status") == "incomplete" or reason is not None:
        return INCOMPLETE.get(reason or "", reason or "length")
    return "tool_calls" if message.get("tool_calls") else "stop"


def item_fault(item: object) -> str | None:
    """Return the part of an item that nobody could read, in words, or None."""
    if not isinstance(item, dict) or not isinstance(item.get("type"), str):
        return "output that is not a list of objects with a type"
    if item["type"] == "function_call" and not all(
        isinstance(item.get(key), str) for key in ("call_id", "name", "arguments")
    ):
        return "a function_call without call_id, name or arguments"
    if item["type"] != "message":
        return None
    content = item.get("content")
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return "a message whose content is not a list of objects"
    return role_fault(item.get("role"))


def message_of(items: Sequence[Item]) -> Message:
    """Return the items of an answer as a chat message."""
    said = [part for item in items if item["type"] == "message" for part in item["content"]]
    texts = [text for part in said if (text := string(part.get("text")))]
    refusals = [text for part in said if (text := string(part.get("refusal")))]
    calls = [call_of(item) for item in items if item["type"] == "function_call"]
    thoughts = [thought_of(item) for item in items if item["type"] == "reasoning"]
    silent = (calls or refusals) and not texts
    message: Message = {"role": "assistant", "content": None if silent else "".join(texts)}
    if refusals:
        message["refusal"] = "".join(refusals)
    if calls:
        message["tool_calls"] = calls
    if any(thoughts):
        message["reasoning_content"] = "\n".join(filter(None, thoughts))
    return message


def thought_of(item: Item) -> str:
    """Return what an item of reasoning lets read: its text, or its summary."""
    return text_of(item.get("content")) or text_of(item.get("summary"))


def call_of(item: Item) -> dict[str, Any]:
    """Return the call of a tool in an item without a fault."""
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _is_plain(item: Item) -> bool:
    if item["type"] == "message":
        return not item.get("phase") and not any(part.get("annotations") for part in item["content"])
    return item["type"] == "function_call" and not item.get("namespace")


def usage_of(data: object) -> Usage | None:
    cached, written = (("input_tokens_details", name) for name in ("cached_tokens", "cache_write_tokens"))
    return usage_in(data, cached=cached, reasoning=("output_tokens_details", "reasoning_tokens"), written=written)


STORED = ("previous_response_id", "conversation", "prompt")
"""Fields that name something which OpenAI has stored."""
WITHOUT_EFFECT = (
    *("model", "include", "store", "truncation", "metadata", "stream_options", "max_tool_calls", "context_management"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "top_logprobs", "moderation"),
)
"""Fields that change nothing about the answer of a model which only gets messages, or that no other API has."""
OF_DELIVERY = ("model", "stream", "stream_options", "seed")
"""Fields that are not passed on: the eval names the model, and its answer is awaited. The API has no `seed`."""
CHAT_NAMES: Mapping[str, str] = {"max_output_tokens": "max_tokens"}
WHY_INCOMPLETE: Mapping[str, str] = {finish: reason for reason, finish in INCOMPLETE.items()}
"""The reason why a response is incomplete, for the reasons of completions."""


# -- requests to a server ----------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse, or that needs its storage."""
    rest = given(body)
    for name in STORED:
        if name in rest:
            raise refuse(f"{name}: nothing is stored here; send the whole conversation as input")
    if rest.pop("background", False):
        raise refuse("background: the answer has to be awaited")
    native, rest = without(rest, OF_DELIVERY), without(rest, WITHOUT_EFFECT)
    stream, seed = bool(rest.pop("stream", None)), take_seed(rest)
    instructions = rest.pop("instructions", None)
    prompts = [{"role": "system", "content": _content_in(instructions)}] if instructions else []
    conversation = [*prompts, *_messages(rest.pop("input", None))]
    tools = take_tools(rest, '{"type": "function", "name": ..., "parameters": {...}}')
    functions = [_function(tool, position) for position, tool in enumerate(tools)]
    return ServedRequest(ChatRequest(conversation, functions, _sampling_in(rest), seed, native=native), stream)


def _sampling_in(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the other keys under the names of chat completions. Unknown names stay."""
    objects = {place: take_object(rest, place) for place in OBJECTS}
    wanted = {name: objects[place].get(key) for name, (place, key) in NESTED.items()}
    wanted["response_format"] = _response_format(objects["text"].get("format"))
    wanted["tool_choice"] = _choice_in(rest.pop("tool_choice", None))
    return {**{CHAT_NAMES.get(name, name): value for name, value in rest.items()}, **given(wanted)}


def _response_format(wanted: object) -> Any:
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return None
    if wanted.get("type") != "json_schema":
        return wanted
    return {"type": "json_schema", "json_schema": without(wanted, ("type",))}


def _choice_in(choice: object) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    raise refuse(f"tool_choice: only functions can be called here, got {choice.get('type')!r}")


def _function(tool: Mapping[str, Any], position: int) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise refuse(
            f"tools[{position}]: a tool of type {tool.get('type')!r} runs at OpenAI; only functions can be called here"
        )
    return {"type": "function", "function": given(tool, OF_FUNCTIONS)}


def _messages(items: object) -> list[Message]:
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise refuse("input must be a string or a list of at least one item")
    messages: list[Message] = []
    for position, item in enumerate(items):
        _add_item(messages, item, f"input[{position}]")
    return messages


def _add_item(messages: list[Message], item: Item, name: str) -> None:
    match item.get("type", "message"):
        case "message":
            _add_message(messages, item, name)
        case "reasoning":
            _answer_in(messages, {"content", "tool_calls"}).update(_reasoning(item))
        case "function_call":
            if item_fault(item) is not None:
                raise refuse(f"{name}: a function_call needs call_id, name and arguments")
            _answer_in(messages, set()).setdefault("tool_calls", []).append(call_of(item))
        case "function_call_output":
            content = _content_in(item.get("output"))
            messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": content})
        case other:
            raise refuse(f"{name}: items of type {other!r} are not served; valid: {', '.join(SERVED_ITEMS)}")


def _add_message(messages: list[Message], item: Item, name: str) -> None:
    role, content = item.get("role"), item.get("content")
    if not isinstance(role, str):
        raise refuse(f"{name} must have a role")
    if role != "assistant":
        messages.append({"role": role, "content": _content_in(content)})
        return
    refusal = refusal_of({"content": content})
    said = {"refusal": refusal} if refusal else {"content": text_of(content)}
    _answer_in(messages, {"content", "refusal", "tool_calls"}).update(said)


def _answer_in(messages: list[Message], closed_by: set[str]) -> Message:
    """Return the assistant's message that goes on, or a new one if it has any of these fields already."""
    last = messages[-1] if messages else {}
    if last.get("role") != "assistant" or any(last.get(name) is not None for name in closed_by):
        messages.append({"role": "assistant", "content": None})
    return messages[-1]


SERVED_ITEMS = ("message", "reasoning", "function_call", "function_call_output")


def _reasoning(item: Item) -> dict[str, Any]:
    """Return the fields of a message for its reasoning. Only an item of `write_reply` holds blocks."""
    text = thought_of(item)
    found: dict[str, Any] = {"reasoning_content": text} if text else {}
    try:
        blocks = read(item.get("encrypted_content") or "")
    except (ValueError, TypeError):
        return found
    return {**found, "content_blocks": blocks} if isinstance(blocks, list) else found


def _content_in(content: Any) -> Any:
    """Return the content of a chat message. A single text is a string, which every server accepts."""
    if not isinstance(content, list):
        return content or ""
    parts = [_part_in(part) for part in content]
    only = parts[0] if len(parts) == 1 else {}
    return only["text"] if only.get("type") == "text" else parts


def _part_in(part: Any) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": str(part.get("text"))}
        case "input_image" if isinstance(part.get("image_url"), str):
            return {"type": "image_url", "image_url": {"url": part["image_url"], **given(part, ("detail",))}}
        case "input_file":
            return {"type": "file", "file": given(part, ("file_data", "file_id", "filename"))}
        case other:
            raise refuse(f"content of type {other!r} is not served")


# -- replies of a server -----------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    items = _items_of(reply, label)
    reason = WHY_INCOMPLETE.get(reply.finish_reason or "")
    status = "completed" if reason is None else "incomplete"
    usage = {} if reply.usage is None else {"usage": _usage_fields(reply.usage)}
    details = None if reason is None else {"reason": reason}
    return {**_head(reply, label), "status": status, "incomplete_details": details, "output": items, **usage}


def _head(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    return {
        "id": f"resp_{label.identity}",
        "object": "response",
        "created_at": label.created,
        "model": reply.model or label.model,
        "error": None,
        "instructions": None,
        "metadata": {},
        "parallel_tool_calls": True,
        "temperature": None,
        "tool_choice": "auto",
        "tools": [],
        "top_p": None,
    }


def _items_of(reply: ChatReply, label: AnswerLabel) -> list[Item]:
    message = reply.message
    if isinstance(message.get(ITEMS), list):
        own: list[Item] = message[ITEMS]
        return [{"id": f"item_{label.identity}_{index}", **item} for index, item in enumerate(own)]
    status = "incomplete" if reply.finish_reason in WHY_INCOMPLETE else "completed"
    items: list[Item] = []
    thought, blocks = text_of(message.get("reasoning_content")), message.get("content_blocks")
    if thought or isinstance(blocks, list):
        content = [{"type": "reasoning_text", "text": thought}] if thought else []
        kept = json.dumps(blocks) if isinstance(blocks, list) else None
        items.append({"type": "reasoning", "summary": [], "content": content, "encrypted_content": kept})
    text, refusal = text_of(message.get("content")), refusal_of(message)
    parts: list[Item] = [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}] if text else []
    if refusal:
        parts.append({"type": "refusal", "refusal": refusal})
    if parts:
        items.append({"type": "message", "role": "assistant", "status": status, "content": parts})
    for call in reply.tool_calls:
        function = call.get("function") or {}
        named = {"call_id": call.get("id"), "name": function.get("name"), "arguments": function.get("arguments") or ""}
        items.append({"type": "function_call", "status": "completed", **named})
    prefixes = {"reasoning": "rs", "message": "msg", "function_call": "fc"}
    return [{"id": f"{prefixes[item['type']]}_{label.identity}_{index}", **item} for index, item in enumerate(items)]


def _usage_fields(usage: Usage) -> dict[str, Any]:
    """Return the tokens. The API has no way to say that a part of them is unknown."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_input_tokens or 0,
            "cache_write_tokens": usage.cache_write_tokens or 0,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens or 0},
        "total_tokens": usage.total_tokens,
    }


# -- streams of a server -----------------------------------------------------------------------------------


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of a reply: each item as it begins, what it says, and whole. The last has the whole response."""
    for number, (kind, data) in enumerate(_events(reply, label)):
        yield event({"type": f"response.{kind}", "sequence_number": number, **data}, f"response.{kind}")


def _events(reply: ChatReply, label: AnswerLabel) -> Iterator[tuple[str, dict[str, Any]]]:
    whole = write_reply(reply, label)
    begun = {**_head(reply, label), "status": "in_progress", "incomplete_details": None, "output": []}
    yield "created", {"response": begun}
    yield "in_progress", {"response": begun}
    for index, item in enumerate(whole["output"]):
        yield "output_item.added", {"output_index": index, "item": _begun(item)}
        at = {"item_id": item["id"], "output_index": index}
        if item["type"] == "function_call":
            yield "function_call_arguments.delta", {**at, "delta": item["arguments"]}
            yield "function_call_arguments.done", {**at, "name": item["name"], "arguments": item["arguments"]}
        else:
            for number, part in enumerate(item.get("content") or ()):
                yield from _part_events(part, {**at, "content_index": number})
        yield "output_item.done", {"output_index": index, "item": item}
    yield whole["status"], {"response": whole}


def _begun(item: Item) -> Item:
    if item["type"] == "function_call":
        return {**item, "arguments": "", "status": "in_progress"}
    if item["type"] == "reasoning":
        return {**item, "content": [], "encrypted_content": None}
    return {**item, "content": [], "status": "in_progress"} if item["type"] == "message" else item


def _part_events(part: Item, at: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    kind = part["type"]
    field = "refusal" if kind == "refusal" else "text"
    more: Item = {"logprobs": []} if kind == "output_text" else {}
    yield "content_part.added", {**at, "part": {**part, field: ""}}
    yield f"{kind}.delta", {**at, "delta": part[field], **more}
    yield f"{kind}.done", {**at, field: part[field], **more}
    yield "content_part.done", {**at, "part": part}


# -- errors of a server ------------------------------------------------------------------------------------


write_error = completions.write_error
