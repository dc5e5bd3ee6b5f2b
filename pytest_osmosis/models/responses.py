"""OpenAI's Responses as JSON: writes chat messages as the body of a request, reads the reply from an answer.

`served.responses` is the other direction, and takes the names and the shapes that both have in common from here.

Nothing is stored at OpenAI, so each request holds the whole conversation, and the model's reasoning travels with it,
encrypted. An answer that chat completions cannot represent (reasoning, the phase of a message) stays on our message as
`provider_items`, and goes back unchanged unless somebody edited the message.

Source: the API reference at platform.openai.com, and the types of the official client.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Describing, Message, Model, Usage
from pytest_osmosis.models.error_bodies import error_in
from pytest_osmosis.models.failures import OF_REQUESTS, Failures
from pytest_osmosis.models.json_bodies import (
    check_size,
    count_in,
    encoded,
    function_of,
    json_object,
    label,
    role_fault,
    shape,
    string,
)
from pytest_osmosis.models.targets import SWITCH, ModelTarget, asks_responses, chat_only
from pytest_osmosis.text.chat_messages import refusal_of, text_of

Item = dict[str, Any]

PATH = "/responses"
REASONING = "reasoning.encrypted_content"
OBJECTS = ("reasoning", "text")
RENAMED: Mapping[str, str] = {"max_tokens": "max_output_tokens", "max_completion_tokens": "max_output_tokens"}
NESTED = {name: path.split(".") for path, name in OF_REQUESTS.items() if "." in path}
"""The object and its key of this API, for keys of chat completions."""
INCOMPLETE: Mapping[str, str] = {"max_output_tokens": "length", "content_filter": "content_filter"}
"""The finish_reason for the reason why a response is incomplete. Others keep their name."""


class ResponsesModel:
    """A `Model` that is asked by `responses`, and by `chat` if that is there and a request has keys that only it takes.

    It learns from the first refusal that a model does not reason, and then asks for no reasoning.
    """

    def __init__(self, responses: Describing, chat: Model | None) -> None:
        self.target = responses.target
        self.description = responses.description
        self._responses = responses
        self._chat = chat
        self._reasons = True

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `ModelError` for tools together with a key that only chat completions take."""
        if self._chat is not None and not asks_responses(self.target.api, request.keys):
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

    Raises `TypeError` or `ValueError` for messages, tools or sampling that JSON or the API cannot represent, and
    `ModelError` for a key that only chat completions have: whoever sends it does so in each run.
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
            body["text"] = {**(body.get("text") or {}), "format": _format(value)}
        elif name in OBJECTS and isinstance(value, Mapping):
            body[name] = {**(body.get(name) or {}), **value}
        else:
            body[RENAMED.get(name, name)] = _tool_choice(value) if name == "tool_choice" else value
    return body


def _format(wanted: Any) -> Any:
    schema = wanted.get("json_schema") if isinstance(wanted, Mapping) else None
    return {"type": "json_schema", **schema} if isinstance(schema, Mapping) else wanted


def _tool_choice(choice: Any) -> Any:
    if not isinstance(choice, Mapping):
        return choice
    if isinstance(choice.get("function"), Mapping):
        return {"type": "function", **choice["function"]}
    allowed = choice.get("allowed_tools")
    if isinstance(allowed, Mapping):
        return {"type": "allowed_tools", **allowed, "tools": list(map(_tool_choice, allowed.get("tools") or ()))}
    return choice


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a function as a tool of this API, strict only if it says so, and any other tool unchanged."""
    function = tool.get("function")
    if not isinstance(function, Mapping):
        return tool
    bare = {"type": "function", "parameters": {"type": "object", "properties": {}}, "strict": False}
    return {**bare, **function_fields(function)}


def function_fields(function: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that describe a function, which are in another place in chat completions."""
    names = ("name", "description", "parameters", "strict")
    return {name: function[name] for name in names if function.get(name) is not None}


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
    """Return True if a message says what its items say."""
    if any(item_fault(item) for item in message[ITEMS]):
        return False
    told = message_of(message[ITEMS])
    return (text_of(told.get("content")), refusal_of(told), told.get("tool_calls") or []) == (
        text_of(message.get("content")),
        refusal_of(message),
        message.get("tool_calls") or [],
    )


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
            detail = {"detail": image["detail"]} if image.get("detail") is not None else {}
            return {"type": "input_image", "image_url": image.get("url"), **detail}
        case "file" if isinstance(part.get("file"), Mapping):
            return {"type": "input_file", **part["file"]}
    return part


# -- replies ----------------------------------------------------------------------------------------------


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    """Return the reply in the body of a 2xx answer.

    Raises `ModelError`: boundary "provider" if the body cannot be read, has other types, has too large a message or is
    no whole answer, "model" if it has no answer, and that of the error if the body reports one.
    """
    body = json_object(status, text, failures)
    ended, output = body.get("status"), body.get("output")
    if error_in(body) is not None:
        raise failures.no_answer(status, f'status "{ended}"', body)
    if ended not in (None, "completed", "incomplete"):
        raise failures.misshapen(status, f'status "{label(ended)}" in place of an answer', body)
    if output is None:
        raise failures.no_answer(status, "output = null" if "output" in body else "no output", body)
    if not isinstance(output, list):
        raise failures.misshapen(status, f"output = {shape(output)}", body)
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
    """Return True for an item that a chat message can represent."""
    if item["type"] == "message":
        return not item.get("phase") and not any(part.get("annotations") for part in item["content"])
    return item["type"] == "function_call" and not item.get("namespace")


def usage_of(data: object) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    fresh, output = count_in(data, "input_tokens"), count_in(data, "output_tokens")
    if fresh is None or output is None:
        return None
    details = data.get("input_tokens_details")
    return Usage(
        fresh,
        output,
        cached_input_tokens=count_in(details, "cached_tokens"),
        reasoning_tokens=count_in(data.get("output_tokens_details"), "reasoning_tokens"),
        cache_write_tokens=count_in(details, "cache_write_tokens"),
    )
