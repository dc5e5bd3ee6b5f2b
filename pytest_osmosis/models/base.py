"""The interface of every model client: one request in, one reply or one `ModelError` out. `retry` has the retries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Protocol

from pytest_osmosis.text.chat_messages import text_of

LARGE_INT = 2**63  # larger ones are refused, because Python neither writes nor reads integers of thousands of digits

Message = dict[str, Any]
"""One chat message in the shape of OpenAI's chat completions, as JSON."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one request, or their sum over a rollout. None means that the server did not report them.

    `cached_input_tokens` (read from a cache) and `cache_write_tokens` are part of the input, `reasoning_tokens` of the
    output.
    """

    input_tokens: int
    output_tokens: int
    cached_input_tokens: int | None = None
    reasoning_tokens: int | None = None
    cache_write_tokens: int | None = None

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            _sum(self.cached_input_tokens, other.cached_input_tokens),
            _sum(self.reasoning_tokens, other.reasoning_tokens),
            _sum(self.cache_write_tokens, other.cache_write_tokens),
        )

    def to_json(self) -> dict[str, int]:
        """Return the counts that the server reported."""
        counts = ((each.name, getattr(self, each.name)) for each in fields(self))
        return {name: count for name, count in counts if count is not None}


def _sum(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else a + b


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """One chat request. `run` is the identity of the run that sends it ("row3-run1"), which is not sent.

    `sampling` contains the other keys of the body: temperature, top_p, max_tokens, stop, and the keys of extra_body.
    `seed` is that of the run.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class ChatReply:
    """The model's answer: the assistant message as the server sent it, as plain JSON.

    `finish_reason` and `usage` are None if the server sent none; `model` is the name that the server echoed.
    """

    message: Message
    finish_reason: str | None = None
    usage: Usage | None = None
    model: str | None = None

    @property
    def content(self) -> str:
        return text_of(self.message.get("content"))

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return self.message.get("tool_calls") or []


def copied(value: Any) -> Any:
    """Return a deep copy of JSON data. Raises `TypeError` for other data (even a tuple), `RecursionError` for a cycle.

    >>> copied([{"role": "user", "content": "2 + 2"}])
    [{'role': 'user', 'content': '2 + 2'}]
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        if not all(type(key) is str for key in value):
            raise TypeError("a key is not a string")
        return {key: copied(item) for key, item in value.items()}
    if kind is list:
        return [copied(item) for item in value]
    if (kind is int and -LARGE_INT < value < LARGE_INT) or (kind is float and math.isfinite(value)):
        return value
    raise TypeError(f"{kind.__name__} is not JSON, or the number is out of bounds")


class Model(Protocol):
    """A client of one model. One call of `chat` sends one request, and raises `ModelError` if it fails.

    Clients limit only the time to connect, because their timers would run on while user code holds the event loop.
    Callers enforce timeouts by cancelling.
    """

    async def chat(self, request: ChatRequest) -> ChatReply: ...

    async def close(self) -> None:
        """Close connections. A second call does nothing."""
        ...
