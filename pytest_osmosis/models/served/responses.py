"""OpenAI's Responses, as a server has them. OpenAI Agents SDK and Pydantic AI ask it unless they are told otherwise.

`models.responses` is the other direction. A model that is asked there gets the body of a request as it is (`native`).

Input items become chat messages: the items of one answer (reasoning, text, calls) are one message of the assistant.
What chat completions cannot represent (`content_blocks` of a model with Anthropic's API) travels as the
`encrypted_content` of a reasoning item, which clients send back unread. Nothing is stored, so each request has to hold
its whole conversation, and only functions can be called. Source: the API reference at platform.openai.com, and the
types of the official client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.json_bodies import shape
from pytest_osmosis.models.json_text import read
from pytest_osmosis.models.responses import (
    INCOMPLETE,
    NESTED,
    OBJECTS,
    Item,
    call_of,
    function_fields,
    item_fault,
    thought_of,
)
from pytest_osmosis.models.served import completions, shapes
from pytest_osmosis.models.served.shapes import AnswerLabel, ServedRequest, event, pieces
from pytest_osmosis.text.chat_messages import refusal_of, text_of

STORED = ("previous_response_id", "conversation", "prompt")
"""Fields that name something which OpenAI has stored."""
WITHOUT_EFFECT = (
    *("include", "store", "truncation", "metadata", "stream_options", "max_tool_calls", "context_management"),
    *("prompt_cache_key", "prompt_cache_retention", "prompt_cache_options", "top_logprobs", "moderation"),
)
"""Fields that change nothing about the answer of a model which only gets messages, or that no other API has."""
OF_DELIVERY = ("model", "stream", "stream_options", "seed")
"""Fields that are not passed on: the eval names the model, and its answer is awaited. The API has no `seed`."""
RENAMED: Mapping[str, str] = {"max_output_tokens": "max_tokens"}
WHY_INCOMPLETE: Mapping[str, str] = {finish: reason for reason, finish in INCOMPLETE.items()}
"""The reason why a response is incomplete, for the reasons of completions."""


# -- requests ---------------------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse, or that needs its storage."""
    rest = shapes.given(body)
    for name in STORED:
        if name in rest:
            raise shapes.refuse(f"{name}: nothing is stored here; send the whole conversation as input")
    if rest.pop("background", False):
        raise shapes.refuse("background: the answer has to be awaited")
    native = {name: value for name, value in rest.items() if name not in OF_DELIVERY}
    for name in WITHOUT_EFFECT:
        rest.pop(name, None)
    shapes.drop_model(rest)
    stream, seed = shapes.take_flag(rest, "stream"), shapes.take_seed(rest)
    instructions = rest.pop("instructions", None)
    shapes.check_content(instructions, "instructions")
    prompts = [{"role": "system", "content": _content(instructions, "instructions")}] if instructions else []
    conversation = [*prompts, *_messages(rest.pop("input", None))]
    tools = shapes.take_tools(rest, '{"type": "function", "name": ..., "parameters": {...}}')
    functions = [_function(tool, position) for position, tool in enumerate(tools)]
    return ServedRequest(ChatRequest(conversation, functions, _sampling(rest), seed, native=native), stream)


def _sampling(rest: dict[str, Any]) -> dict[str, Any]:
    """Return the other keys under the names of chat completions. Unknown names stay."""
    objects = {place: shapes.take_object(rest, place) for place in OBJECTS}
    wanted = {name: objects[place].get(key) for name, (place, key) in NESTED.items()}
    wanted["response_format"] = _response_format(objects["text"].get("format"))
    wanted["tool_choice"] = _tool_choice(rest.pop("tool_choice", None))
    return {**{RENAMED.get(name, name): value for name, value in rest.items()}, **shapes.given(wanted)}


def _response_format(wanted: object) -> Any:
    if not isinstance(wanted, dict) or wanted.get("type") == "text":
        return None
    if wanted.get("type") != "json_schema":
        return wanted
    return {"type": "json_schema", "json_schema": {name: wanted[name] for name in wanted if name != "type"}}


def _tool_choice(choice: object) -> Any:
    if not isinstance(choice, dict):
        return choice
    if choice.get("type") == "function":
        return {"type": "function", "function": {"name": choice.get("name")}}
    if choice.get("type") == "allowed_tools" and isinstance(choice.get("tools"), list):
        tools = [_tool_choice(tool) for tool in choice["tools"]]
        return {"type": "allowed_tools", "allowed_tools": {"mode": choice.get("mode"), "tools": tools}}
    raise shapes.refuse(f"tool_choice: only functions can be called here, got {choice.get('type')!r}")


def _function(tool: Mapping[str, Any], position: int) -> dict[str, Any]:
    if tool.get("type") != "function":
        raise shapes.refuse(
            f"tools[{position}]: a tool of type {tool.get('type')!r} runs at OpenAI; only functions can be called here"
        )
    return {"type": "function", "function": function_fields(tool)}


def _messages(items: object) -> list[Message]:
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise shapes.refuse("input must be a string or a list of at least one item")
    conversation = _Conversation()
    for position, item in enumerate(items):
        if not isinstance(item, dict):
            raise shapes.refuse(f"input[{position}] must be an object, got {shape(item)}")
        conversation.add(item, f"input[{position}]")
    return conversation.messages


class _Conversation:
    """Joins the items of each answer to one message of the assistant."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self._answer: Message | None = None

    def add(self, item: Item, name: str) -> None:
        match item.get("type", "message"):
            case "message":
                self._add_message(item, name)
            case "reasoning":
                self._of_assistant({"content", "tool_calls"}).update(_reasoning(item))
            case "function_call":
                call = _call(item, name)
                answer = self._of_assistant(set())
                answer["tool_calls"] = [*answer.get("tool_calls", ()), call]
            case "function_call_output":
                output = item.get("output")
                shapes.check_content(output, f"{name}.output")
                self._add({"role": "tool", "tool_call_id": item.get("call_id"), "content": _content(output, name)})
            case other:
                raise shapes.refuse(f"{name}: items of type {other!r} are not served; valid: {', '.join(SERVED_ITEMS)}")

    def _add_message(self, item: Item, name: str) -> None:
        role, content = item.get("role"), item.get("content")
        if not isinstance(role, str):
            raise shapes.refuse(f"{name} must have a role")
        shapes.check_content(content, f"{name}.content")
        if role != "assistant":
            self._add({"role": role, "content": _content(content, name)})
            return
        answer = self._of_assistant({"content", "refusal", "tool_calls"})
        refusal = refusal_of({"content": content})
        answer.update({"refusal": refusal} if refusal else {"content": text_of(content)})

    def _add(self, message: Message) -> None:
        self._answer = None
        self.messages.append(message)

    def _of_assistant(self, closed_by: set[str]) -> Message:
        """Return the assistant's message that goes on, or a new one if it has any of these fields already."""
        if self._answer is None or any(self._answer.get(name) is not None for name in closed_by):
            answer: Message = {"role": "assistant", "content": None}
            self._add(answer)
            self._answer = answer
        return self._answer


SERVED_ITEMS = ("message", "reasoning", "function_call", "function_call_output")


def _call(item: Item, name: str) -> dict[str, Any]:
    if item_fault(item) is not None:
        raise shapes.refuse(f"{name}: a function_call needs call_id, name and arguments")
    return call_of(item)


def _reasoning(item: Item) -> dict[str, Any]:
    """Return the fields of a message for its reasoning. Only an item of `write_reply` holds blocks."""
    text = thought_of(item)
    found: dict[str, Any] = {"reasoning_content": text} if text else {}
    try:
        blocks = read(item.get("encrypted_content") or "")
    except (ValueError, TypeError):
        return found
    return {**found, "content_blocks": blocks} if isinstance(blocks, list) else found


def _content(content: Any, name: str) -> Any:
    """Return the content of a chat message. A single text is a string, which every server accepts."""
    if not isinstance(content, list):
        return content or ""
    parts = [_part(part, name) for part in content]
    only = parts[0] if len(parts) == 1 else {}
    return only["text"] if only.get("type") == "text" else parts


def _part(part: Any, name: str) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            return {"type": "text", "text": str(part.get("text"))}
        case "input_image" if isinstance(part.get("image_url"), str):
            detail = {"detail": part["detail"]} if part.get("detail") is not None else {}
            return {"type": "image_url", "image_url": {"url": part["image_url"], **detail}}
        case "input_file":
            names = ("file_data", "file_id", "filename")
            return {"type": "file", "file": {each: part[each] for each in names if part.get(each) is not None}}
        case "input_audio":
            return dict(part)
        case other:
            raise shapes.refuse(f"{name}: content of type {other!r} is not served")


# -- replies ----------------------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    items = _items(reply, label)
    reason = WHY_INCOMPLETE.get(reply.finish_reason or "")
    status = "completed" if reason is None else "incomplete"
    usage = {} if reply.usage is None else {"usage": _usage(reply.usage)}
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


def _items(reply: ChatReply, label: AnswerLabel) -> list[Item]:
    """Return the reply as items: its reasoning, its text or refusal, its calls."""
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


def _usage(usage: Usage) -> dict[str, Any]:
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


# -- streams ----------------------------------------------------------------------------------------------


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the events of a reply: each item as it begins, in pieces, and whole. The last has the whole response."""
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
            for piece in pieces(item["arguments"]):
                yield "function_call_arguments.delta", {**at, "delta": piece}
            yield "function_call_arguments.done", {**at, "name": item["name"], "arguments": item["arguments"]}
        else:
            for number, part in enumerate(item.get("content") or ()):
                yield from _part_events(part, {**at, "content_index": number})
        yield "output_item.done", {"output_index": index, "item": item}
    yield whole["status"], {"response": whole}


def _begun(item: Item) -> Item:
    """Return an item before anything is said in it."""
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
    for piece in pieces(part[field]):
        yield f"{kind}.delta", {**at, "delta": piece, **more}
    yield f"{kind}.done", {**at, field: part[field], **more}
    yield "content_part.done", {**at, "part": part}


# -- errors -----------------------------------------------------------------------------------------------


write_error = completions.write_error
