"""The functions that every served API has, and the answer to a request: JSON, or server-sent events.

A module of this folder for each API is an `ApiShape`. A server reads a body, asks a model, and writes its reply:

    served = shape.read_request(read_body(raw))
    answer = write_answer(shape, served, await chat(served.chat), AnswerLabel("7", created, model))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, Protocol

from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.json_bodies import encoded
from pytest_osmosis.models.json_text import MAX_DEPTH, TooDeep, read
from pytest_osmosis.models.served.errors import ApiError

JSON = "application/json"
EVENT_STREAM = "text/event-stream"

PIECE_CHARS = 64
"""The length of the pieces in which a text is streamed. The whole reply is known before the first is sent."""


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
        """Return the request in a body. Raises `ApiError` with status 400 for one that the API would refuse."""
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


def pieces(text: str) -> Iterator[str]:
    """Yield a text in the pieces in which it is streamed, nothing for an empty one."""
    return (text[begin : begin + PIECE_CHARS] for begin in range(0, len(text), PIECE_CHARS))
