"""The server's side of an API: the functions that each has, and the answer to a request, JSON or server-sent events.

`completions`, `messages` and `responses` are an `ApiShape` each. A server reads a body, asks a model, and answers:

    served = read_served(shape, read_body(raw))
    answer = write_answer(shape, served, await chat(served.chat), AnswerLabel("7", created, model))

Clients send what their types allow, so a body of another shape gets one general error.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message
from pytest_osmosis.models.failures import client_error
from pytest_osmosis.models.json_bodies import encoded
from pytest_osmosis.models.lenient_json import MAX_DEPTH, TooDeep, read
from pytest_osmosis.text.safe import one_line


class ApiError(Exception):
    """A request that gets an error instead of a reply. `code` is OpenAI's short name for it."""

    def __init__(self, status: int, message: str, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code

    @property
    def is_of_server(self) -> bool:
        """True if the request may be right, and the server behind failed."""
        return self.status >= 500 or client_error(self.status) == "retried"


def api_error(error: ApiError | ModelError) -> ApiError:
    """Return a model's error as the error of a request to it, with the status and the text of the server behind.

    An error of a request stays what it is.
    Without a status of an error, the request is at fault (400) if the model refused it, and else the server (502).
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
    except TooDeep:
        raise ApiError(400, f"the body is not JSON: it is nested more than {MAX_DEPTH} levels deep") from None
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
