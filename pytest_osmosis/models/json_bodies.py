"""JSON bodies of requests and answers: written strictly, read leniently, whether we are the client or the server.

Numbers from outside that are not finite, or have more than 64 bits, become None: their value is unknown.

`completions`, `messages` and `responses` are an `ApiShape` each, the server's side of an API. A server reads a body,
asks a model, and answers:

    served = read_served(shape, read_body(raw))
    answer = write_answer(shape, served, await chat(served.chat), AnswerLabel("7", created, model))

Clients send what their types allow, so a body of another shape gets one general error.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from msgspec import MsgspecError
from msgspec.json import decode as decode_json
from msgspec.json import encode as encode_json

from pytest_osmosis.errors import ModelError
from pytest_osmosis.files.reading import depth
from pytest_osmosis.models.base import LARGE_INT, ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.targets import MESSAGE_SHARE, ModelTarget
from pytest_osmosis.text.safe import one_line

if TYPE_CHECKING:
    from pytest_osmosis.models.failures import Failures

MAX_COUNT = 10**9
"""More tokens than any request can have. What a larger number would cost is not worth computing."""
MAX_LABEL = 200
ESCAPED = 6
"""The length of a character as an escape."""


def encoded(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return a body as ASCII JSON, because UTF-8 has no lone surrogates. Raises `TypeError` or `ValueError`.

    msgspec writes one in a fifth of the time, reading it again included. It also writes what JSON has no shape for, as
    something else: only what comes back as it was is sent.
    """
    try:
        quick = encode_json(body)
        is_same = quick.isascii() and decode_json(quick) == body
    except Exception:  # of whatever is in the body
        is_same = False
    return quick if is_same else _written(body).encode("ascii")


_written = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def decoded(status: int, content: bytes, failures: Failures) -> str:
    """Return the text of a body. Raises a retryable `ModelError` if it is not UTF-8, the one encoding of JSON."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 (byte 0x{content[error.start]:02x} at position {error.start:,})"
        raise failures.unreadable(status, shown(content), fault) from None


def shown(content: bytes) -> str:
    r"""Return a body for a message. Bytes that are not UTF-8 become escapes.

    >>> print(shown(b"caf\xe9"))
    caf\xe9
    """
    return content.decode("utf-8-sig", errors="backslashreplace")


def json_object(status: int, text: str, failures: Failures) -> dict[str, Any]:
    """Return the object in the body of an answer. Raises a retryable `ModelError` if the body is not an object."""
    if not text.strip():
        raise failures.unreadable(status, text, "is empty")
    try:
        body = read(text)
    except TooDeep:
        raise failures.unreadable(status, text, f"is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:
        raise failures.unreadable(status, text, "is not JSON") from None
    if not isinstance(body, dict):
        raise failures.unreadable(status, text, "is not a JSON object")
    return body


def answer_list(body: Mapping[str, Any], key: str, status: int, failures: Failures) -> list[Any]:
    """Return the list that the body of an answer has under a key. Raises `ModelError` if it has none."""
    value = body.get(key)
    if value is None:
        raise failures.no_answer(status, f"{key} = null" if key in body else f"no {key}", body)
    if not isinstance(value, list):
        raise failures.misshapen(status, f"{key} = {shape(value)}", body)
    return value


def first_choice(choices: Sequence[Any]) -> Any:
    """Return the choice with index 0, in whatever order a server lists them; the first if none has that index."""
    return next((each for each in choices if isinstance(each, dict) and each.get("index") == 0), choices[0])


def function_of(call: Any) -> Mapping[str, Any]:
    """Return the function that a tool call of a chat message names. Raises `ValueError` for what is no call."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError(f"a tool call must be an object with a function, got {call!r}")
    return function


OF_OTHERS = frozenset({"user", "human", "system", "developer", "tool", "function"})
"""The roles of messages that no model wrote. Servers have many names for its own: "model", "ai", "Assistant"."""


def role_fault(role: object) -> str | None:
    """Return why a message is no answer of a model, in words, or None. It may lack a role."""
    if not isinstance(role, str | None):
        return f"role = {shape(role)}"
    name = (role or "").strip().lower()
    return f'a message of role "{name}" in place of an answer' if name in OF_OTHERS else None


def check_size(status: int, message: Any, target: ModelTarget, failures: Failures) -> None:
    """Raise `ModelError` for a message that is too large to be kept, sent back and written. It is counted unwritten."""
    limit = target.max_message_bytes
    size, rest = 0, [message]
    while rest and size <= limit:
        value = rest.pop()
        if isinstance(value, str):
            size += len(value) * (1 if value.isascii() and value.isprintable() else ESCAPED)
        elif isinstance(value, (dict, list)):
            rest += (*value, *value.values()) if isinstance(value, dict) else value
        size += 1
    if size > limit:
        raise failures.too_large(
            status, f"a message of more than {limit / 2**20:g} MB (a {MESSAGE_SHARE}th of the bound on a body)"
        )


def count_in(value: object, *path: str) -> int | None:
    """Return the number of tokens at a path of names, None for a value that cannot be one."""
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value if type(value) is int and 0 <= value <= MAX_COUNT else None


def usage_in(data: object, *, cached: Sequence[str], reasoning: Sequence[str], written: Sequence[str]) -> Usage | None:
    """Return the tokens under the names that newer APIs have, and the paths to parts of them; None without a sum."""
    fresh, output = count_in(data, "input_tokens"), count_in(data, "output_tokens")
    if fresh is None or output is None:
        return None
    return Usage(fresh, output, count_in(data, *cached), count_in(data, *reasoning), count_in(data, *written))


def given(body: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the keys of a body that have a value, or those of `names`: null stands for the default in every API."""
    return {name: body[name] for name in names or body if body.get(name) is not None}


def without(body: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def label(value: object) -> str | None:
    """Return the name of a model or of a reason, None for a value that cannot be one."""
    return value if isinstance(value, str) and len(value) <= MAX_LABEL else None


def shape(value: object) -> str:
    """Return the type of a value in words: "null" or "a list"."""
    return SHAPES.get(type(value), "a number")


SHAPES = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}


# -- JSON from outside ------------------------------------------------------------------------------------

MAX_DEPTH = 100
"""JSON that is nested deeper is refused, because Python's own recursion would end somewhere later."""
TOO_DEEP = f"it is nested more than {MAX_DEPTH} levels deep"


class TooDeep(ValueError):
    """JSON that is nested deeper than MAX_DEPTH."""


def read(text: str) -> Any:
    """Return the value of `text`. Raises `ValueError` if it is not JSON, `TooDeep` if it is nested too deeply."""
    try:
        value = _quickly_read(text)
    except RecursionError:
        raise TooDeep(TOO_DEEP) from None
    if text.count("[") + text.count("{") > MAX_DEPTH and depth(value) > MAX_DEPTH:
        raise TooDeep(TOO_DEEP)
    return value


def _quickly_read(text: str) -> Any:
    """Return a value, in a fifth of the time if it has no number of more than 64 bits, as nearly no body has."""
    try:
        return _read(text) if _MANY_DIGITS.search(text) else decode_json(text)
    except (MsgspecError, UnicodeError):
        return _read(text)


def _not_a_number(_constant: str) -> None:
    """Return None for NaN and Infinity, because replies are written as strict JSON."""


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


def _of_64_bits(literal: str) -> int | None:
    if len(literal) > len(str(-LARGE_INT)):
        return None
    number = int(literal)
    return number if -LARGE_INT <= number < LARGE_INT else None


_MANY_DIGITS = re.compile(r"[0-9][0-9]{18}")
_read = json.JSONDecoder(parse_constant=_not_a_number, parse_float=_finite, parse_int=_of_64_bits).decode


# -- the server's side of an API --------------------------------------------------------------------------


class ApiError(Exception):
    """A request that gets an error instead of a reply. `code` is OpenAI's short name for it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code


def api_error(error: ApiError | ModelError) -> ApiError:
    """Return a model's error as the error of a request to it, with the status and the text of the server behind.

    An error of a request stays what it is. Without a status of an error, the request is at
    fault (400) if the model refused it, and else the server (502).
    """
    if isinstance(error, ApiError):
        return error
    status = error.status
    if status is None or not 400 <= status < 600:
        status = 400 if error.boundary == "model" else 502
    return ApiError(status, str(error))


MAX_FAULT = 300
JSON = "application/json"
EVENT_STREAM = "text/event-stream"


class ServedRequest(NamedTuple):
    """A request as a client sent it. Every key of its body that has no place of its own is in `chat.sampling`."""

    chat: ChatRequest
    stream: bool = False
    include_usage: bool = True
    """False if a stream is to end without the tokens, which OpenAI's clients have to ask for."""


class AnswerLabel(NamedTuple):
    """The name of an answer. `model` is given for replies that do not name theirs, `created` in seconds since 1970."""

    identity: str
    created: int
    model: str


class AnswerBody(NamedTuple):
    content_type: str
    body: bytes


class ApiShape(Protocol):
    """One API, as a module: its requests, replies and errors as JSON."""

    def read_request(self, body: Mapping[str, Any]) -> ServedRequest:
        """Return the request in a body. Raises `ApiError` for one that is not served, any error for another shape."""
        ...

    def write_reply(self, reply: ChatReply, label: AnswerLabel) -> dict[str, Any]:
        """Return the body of the answer to a request without `stream`."""
        ...

    def write_events(self, reply: ChatReply, label: AnswerLabel, *, include_usage: bool = True) -> Iterator[bytes]:
        """Yield the events of the answer to a request with `stream`, ready to be sent."""
        ...

    def write_error(self, error: ApiError) -> dict[str, Any]:
        """Return the body of an error."""
        ...


def write_answer(shape: ApiShape, served: ServedRequest, reply: ChatReply, label: AnswerLabel) -> AnswerBody:
    """Return the answer to a request, streamed if it asks for that."""
    if served.stream:
        events = shape.write_events(reply, label, include_usage=served.include_usage)
        return AnswerBody(EVENT_STREAM, b"".join(events))
    return AnswerBody(JSON, encoded(shape.write_reply(reply, label)))


def read_served(shape: ApiShape, body: Mapping[str, Any]) -> ServedRequest:
    """Return the request in a body. Raises `ApiError` with status 400 for one that the API would refuse."""
    try:
        return shape.read_request(body)
    except (TypeError, ValueError, AttributeError, LookupError, RecursionError) as error:
        text = f"the body is not a request of this API ({type(error).__name__}: {error})"
        raise refuse(one_line(text, MAX_FAULT)) from None


def read_body(raw: bytes) -> dict[str, Any]:
    """Return the object in the body of a request. Raises `ApiError` with status 400 if it is not one."""
    try:
        body = read(raw.decode("utf-8-sig"))
    except ValueError as error:
        raise ApiError(400, f"the body is not JSON: {error}") from None
    if not isinstance(body, dict):
        raise ApiError(400, f"the body must be a JSON object, got {type(body).__name__}")
    return body


def event(data: Mapping[str, Any], name: str | None = None) -> bytes:
    """Return a server-sent event with JSON, which has no line breaks.

    >>> event({"type": "ping"}, "ping")
    b'event: ping\\ndata: {"type":"ping"}\\n\\n'
    """
    head = b"" if name is None else b"event: %s\n" % name.encode("ascii")
    return b"%sdata: %s\n\n" % (head, encoded(data))


ONE_ANSWER = "n must be 1, because a request gets one answer; send it again for another"


def refuse(text: str) -> ApiError:
    return ApiError(400, text)


def take_messages(body: dict[str, Any]) -> list[Message]:
    """Remove the messages from a body: at least one object, each with a role."""
    messages = body.pop("messages", None)
    if not isinstance(messages, list) or not messages or not all(map(_has_role, messages)):
        raise refuse("messages must be a list of at least one object, each with a role")
    return messages


def _has_role(message: object) -> bool:
    return isinstance(message, dict) and isinstance(message.get("role"), str)


def take_tools(body: dict[str, Any], example: str) -> list[dict[str, Any]]:
    tools = body.pop("tools", None)
    if tools is None:
        return []
    if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
        raise refuse(f"tools must be a list of objects such as {example}")
    return tools


def take_seed(body: dict[str, Any]) -> int | None:
    seed = body.pop("seed", None)
    if isinstance(seed, bool) or not isinstance(seed, int | None):
        raise refuse(f"seed must be an integer, got {seed!r}")
    return seed


def take_object(body: dict[str, Any], name: str) -> dict[str, Any]:
    """Remove a key that is an object, or missing, which is an empty one."""
    return dict(body.pop(name, None) or {})
