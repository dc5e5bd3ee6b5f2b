"""OpenAI's chat completions as JSON: writes the body of a request, reads the reply from the body of an answer.

A reply may lack usage, id and finish_reason, and unknown fields of its message are kept. It must have a choice with a
message: that is the answer, whatever its role is called, unless the role is that of somebody else.

A server of ours reads requests and writes replies: our messages have this shape, and pass unchanged with all of their
fields. Source: the API reference at platform.openai.com, and the types of the official client.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Usage, usage_fields
from pytest_osmosis.models.failures import Failures, error_in, type_of_error
from pytest_osmosis.models.json_bodies import (
    ONE_ANSWER,
    AnswerLabel,
    ApiError,
    ServedRequest,
    answer_list,
    check_size,
    count_in,
    encoded,
    event,
    first_choice,
    given,
    json_object,
    label,
    refuse,
    role_fault,
    shape,
    take_messages,
    take_object,
    take_seed,
    take_tools,
    without,
)
from pytest_osmosis.models.targets import ModelTarget
from pytest_osmosis.text.chat_messages import text_of

PATH = "/chat/completions"
OF_MESSAGES = frozenset({"content_blocks", "is_error", ITEMS})
"""The keys of our messages that only Anthropic's API or OpenAI's Responses have."""
MARK = "cache_control"
"""The mark of a part, a tool or a message for the cache of Anthropic's models. Other services pass it on to those."""


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    return encoded(request_body(request, target))


def request_body(request: ChatRequest, target: ModelTarget) -> dict[str, Any]:
    """Return the body of a request before it is written."""
    messages, tools = sendable(request.messages), list(request.tools)
    if target.provider == "openai":
        messages, tools = [_unmarked(message) for message in messages], [_unmarked(tool) for tool in tools]
    body: dict[str, Any] = {"model": target.model, "messages": messages}
    if tools:
        body["tools"] = tools
    body |= target.seed_field(request.seed)
    sampling = dict(request.sampling)
    if "max_tokens" in sampling:
        body[target.max_tokens_key] = sampling.pop("max_tokens")
    return {**body, **sampling}


def sendable(messages: Sequence[Message]) -> list[Message]:
    """Return messages without the keys that servers of this API would refuse."""
    return [without(message, OF_MESSAGES) if isinstance(message, Mapping) else message for message in messages]


def _unmarked(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    content = value.get("content")
    parts = {"content": [_unmarked(part) for part in content]} if isinstance(content, list) else {}
    return {**without(value, {MARK}), **parts}


def read_reply(status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
    return reply_in(status, text, target, failures, "message", _fault, _message)


def reply_in(
    status: int,
    text: str,
    target: ModelTarget,
    failures: Failures,
    key: str,
    fault_of: Callable[[Any], str | None],
    message_of: Callable[[Any], Message],
) -> ChatReply:
    """Return the reply in a body whose choices have the answer under a key, as `read_reply` does.

    `fault_of` says what nobody could read in an answer, and `message_of` returns one without a fault as a message.
    """
    body = json_object(status, text, failures)
    choices = answer_list(body, "choices", status, failures)
    if not choices:
        raise failures.no_answer(status, "no choices", body)
    choice = first_choice(choices)
    if not isinstance(choice, dict):
        raise failures.misshapen(status, "a choice that is not an object", body)
    answer = choice.get(key)
    if answer is None:
        raise failures.no_answer(status, f'a choice without "{key}"', choice, body)
    fault = fault_of(answer)
    if fault is not None:
        raise failures.misshapen(status, fault, choice, body)
    check_size(status, answer, target, failures)
    message = message_of(answer)
    is_silent = not any(message.get(name) for name in ("content", "tool_calls", "refusal"))
    if error_in(choice) is not None or (error_in(body) is not None and is_silent):
        raise failures.no_answer(status, "an answer that the server broke off", choice, body)
    if choice.get("finish_reason") == "error":
        raise failures.misshapen(status, 'finish_reason "error"')
    return ChatReply(
        message,
        finish_reason=label(choice.get("finish_reason")),
        usage=usage_of(body.get("usage")),
        model=label(body.get("model")),
    )


def _fault(message: object) -> str | None:
    if not isinstance(message, dict):
        return f"message = {shape(message)}"
    if fault := role_fault(message.get("role")):
        return fault
    for field, kinds in (("refusal", str), ("content", (str, list))):
        if not isinstance(message.get(field), (kinds, type(None))):
            return f"{field} = {shape(message[field])}"
    if isinstance(message.get("content"), list) and not all(
        isinstance(part, (str, dict)) for part in message["content"]
    ):
        return "content that is not a list of objects"
    calls = message.get("tool_calls")
    if not _are_calls(calls):
        return "tool_calls that are not a list of objects"
    return None if all(map(_is_call, calls or ())) else "tool_calls without a function, its name or its arguments"


def _are_calls(calls: object) -> bool:
    return calls is None or (isinstance(calls, list) and all(isinstance(call, dict) for call in calls))


def _is_call(call: Mapping[str, Any]) -> bool:
    """Return False for a call of a function that cannot be called. Calls of other types are the agent's own matter."""
    function = call.get("function")
    if function is None:
        return call.get("type") not in (None, "function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return False
    return isinstance(function.get("arguments"), (str, dict, type(None)))


def _message(message: Message) -> Message:
    """Return the message as the assistant's, with the arguments of its calls as text, though sent as JSON."""
    calls = {"tool_calls": [_call(call) for call in message["tool_calls"]]} if message.get("tool_calls") else {}
    return {**message, "role": "assistant", **calls}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if function is None or isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": json.dumps(function.get("arguments") or {})}}


def usage_of(data: object) -> Usage | None:
    """Return the tokens. DeepSeek and LiteLLM have names of their own for those read from and written to a cache.

    Some servers leave reasoning tokens out of `completion_tokens`, but not out of `total_tokens`: xAI's and Google's.
    """
    input_tokens, output_tokens = count_in(data, "prompt_tokens"), count_in(data, "completion_tokens")
    if input_tokens is None or output_tokens is None:
        return None
    output_tokens = max(output_tokens, (count_in(data, "total_tokens") or 0) - input_tokens)
    cached = count_in(data, "prompt_tokens_details", "cached_tokens")
    written = count_in(data, "prompt_tokens_details", "cache_write_tokens")
    return Usage(
        input_tokens,
        output_tokens,
        cached_input_tokens=count_in(data, "prompt_cache_hit_tokens") if cached is None else cached,
        reasoning_tokens=count_in(data, "completion_tokens_details", "reasoning_tokens"),
        cache_write_tokens=count_in(data, "cache_creation_input_tokens") if written is None else written,
    )


# -- the older API ------------------------------------------------------------------------------------------

TEXT_API = 'the API "openai_completions"'


class TextCompletions:
    """OpenAI's older API, /completions, for base models: the conversation is sent as one text, and the answer is text.

    The prompt is the text of the messages, joined by blank lines, without their roles. No tools or images can be sent.
    """

    PATH = "/completions"

    def write_request(self, request: ChatRequest, target: ModelTarget) -> bytes:
        if request.tools:
            raise ValueError(f"{TEXT_API} takes no tools; ask a server with chat completions, or offer no tools")
        body = {"model": target.model, "prompt": prompt_of(request.messages)}
        return encoded({**body, **target.seed_field(request.seed), **request.sampling})

    def read_reply(self, status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
        def fault(answer: object) -> str | None:
            return None if isinstance(answer, str) else f"text = {shape(answer)}"

        return reply_in(
            status, text, target, failures, "text", fault, lambda answer: {"role": "assistant", "content": answer}
        )


def prompt_of(messages: Sequence[Message]) -> str:
    r"""Return messages as one text.

    >>> prompt_of([{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 2 ="}])
    'Add.\n\n2 + 2 ='
    """
    return "\n\n".join(_text(message.get("content")) for message in messages)


def _text(content: object) -> str:
    if isinstance(content, str | None):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    texts = [part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else part for part in parts]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"{TEXT_API} takes text only, and a message holds another part, such as an image")
    return " ".join(map(str, texts)).strip()


FINISH_REASONS = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call"})
"""The reasons that the API has. Some clients refuse any other."""

ERROR_TYPES: Mapping[int, str] = {401: "authentication_error", 429: "rate_limit_error"}
STREAMED = ("reasoning_content", "content", "refusal", "tool_calls")
"""The fields of a message that are streamed, in this order. All others come with its role."""


# -- requests to a server ----------------------------------------------------------------------------------


def read_request(body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` for one that the API would refuse, or with `n` above 1."""
    rest = without(body, {"model"})
    messages = take_messages(rest)
    if not all(_are_calls(message.get("tool_calls")) for message in messages):
        raise refuse("tool_calls must be a list of objects")
    tools = take_tools(rest, '{"type": "function", "function": {...}}')
    seed, n = take_seed(rest), rest.pop("n", None)
    if n not in (None, 1) or isinstance(n, bool):
        raise refuse(f"{ONE_ANSWER}, got {n!r}")
    stream, options = bool(rest.pop("stream", None)), take_object(rest, "stream_options")
    chat = ChatRequest(messages, tools, _sampling(rest), seed)
    return ServedRequest(chat, stream, include_usage=options.get("include_usage") is True)


def _sampling(rest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the other keys. The bound on tokens has two names, of which each server knows one (`max_tokens_key`)."""
    sampling = given(rest)
    if "max_completion_tokens" in sampling:
        sampling["max_tokens"] = sampling.pop("max_completion_tokens")
    return sampling


# -- replies of a server -----------------------------------------------------------------------------------


def write_reply(reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"content": None, **without(reply.message, {ITEMS})},
        "logprobs": None,
        "finish_reason": _finish_reason(reply),
    }
    body = {**_head(reply, label, "chat.completion"), "choices": [choice]}
    return body if reply.usage is None else {**body, "usage": usage_fields(reply.usage)}


def write_events(reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
    """Yield the chunks of a reply: the fields of its message, its finish_reason, and its tokens in a last one."""
    head = _head(reply, label, "chat.completion.chunk")
    shown = include_usage and reply.usage is not None
    rest = {"usage": None} if shown else {}

    def chunk(delta: Mapping[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**head, "choices": [choice], **rest})

    yield from map(chunk, _deltas(without(reply.message, {ITEMS})))
    yield chunk({}, _finish_reason(reply))
    if shown and reply.usage is not None:
        yield event({**head, "choices": [], "usage": usage_fields(reply.usage)})
    yield b"data: [DONE]\n\n"


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
    yield {"role": "assistant", "content": None if calls else "", **without(message, STREAMED)}
    for name in STREAMED[:-1]:
        if text := text_of(message.get(name)):
            yield {name: text}
    if calls:
        yield {"tool_calls": [{"index": index, **call} for index, call in enumerate(calls)]}


# -- errors of a server ------------------------------------------------------------------------------------


def write_error(error: ApiError) -> dict[str, Any]:
    kind = type_of_error(error.status, ERROR_TYPES, "server_error")
    return {"error": {"message": str(error), "type": kind, "param": None, "code": error.code}}
