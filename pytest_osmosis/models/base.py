"""The interface of every model client: one request in, one reply or one `ModelError` out. `retry` has the retries."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.text.chat_messages import FILTERED, REFUSED, refusal_of, text_of
from pytest_osmosis.text.safe import one_line

if TYPE_CHECKING:
    from pytest_osmosis.models.failures import Failures
    from pytest_osmosis.models.targets import ModelTarget

LARGE_INT = 2**63  # larger ones are refused, because Python neither writes nor reads integers of thousands of digits

Message = dict[str, Any]
"""One chat message in the shape of OpenAI's chat completions, as JSON."""


ITEMS = "provider_items"
"""The key of a message with the items of its answer, where only OpenAI's Responses can represent them."""


class Usage(Struct, frozen=True):
    """Tokens of one request, or their sum over a rollout. None means that the server did not report them."""

    input_tokens: int
    """All tokens that were sent, those from a cache included."""
    output_tokens: int
    """All tokens of the answer, those of its reasoning included."""
    cached_input_tokens: int | None = None
    """The part of the input that the server read from its cache."""
    reasoning_tokens: int | None = None
    """The part of the output that was reasoning."""
    cache_write_tokens: int | None = None
    """The part of the input that the server wrote to its cache."""

    @property
    def total_tokens(self) -> int:
        """The sum of input and output."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: Usage) -> Usage:
        pairs = ((getattr(self, name), getattr(other, name)) for name in _USAGE)
        return Usage(*(b if a is None else a if b is None else a + b for a, b in pairs))

    def to_json(self) -> dict[str, int]:
        """Return the counts that the server reported."""
        return {name: count for name in _USAGE if (count := getattr(self, name)) is not None}


_USAGE = Usage.__struct_fields__


def usage_fields(usage: Usage) -> dict[str, Any]:
    """Return tokens under the names that OpenAI's chat completions have for them."""
    counts: dict[str, Any] = {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
    }
    of_input = {"cached_tokens": usage.cached_input_tokens, "cache_write_tokens": usage.cache_write_tokens}
    for name, details in (("prompt", of_input), ("completion", {"reasoning_tokens": usage.reasoning_tokens})):
        known = {each: tokens for each, tokens in details.items() if tokens is not None}
        counts |= {f"{name}_tokens_details": known} if known else {}
    return counts


class ChatRequest(Struct, frozen=True):
    """One chat request. `run` is the identity of the run that sends it ("row3-run1"), which is not sent.

    `sampling` contains the other keys of the body: temperature, top_p, max_tokens, stop, and the keys of extra_body.
    `seed` is that of the run. `headers` are HTTP headers of this request alone: they replace those of the target that
    have the same name in any case, and are no part of a cassette's digest. `failed_at` are the replicas of the model
    that failed this request before. `native` is the body of a request that came in the form of OpenAI's Responses, for
    a model that is asked in that form. `script` is what `demo/script` answers from.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] = ()
    sampling: Mapping[str, Any] = {}
    seed: int | None = None
    run: str = ""
    headers: Mapping[str, str] = {}
    failed_at: tuple[str, ...] = ()
    native: Mapping[str, Any] | None = None
    script: Any = None

    @property
    def keys(self) -> list[str]:
        """The keys of the sampling, and of the seed if there is one."""
        return [*self.sampling, *([] if self.seed is None else ["seed"])]


class ChatReply(Struct, frozen=True):
    """The model's answer to one request, as `ChatContext.chat` returns it."""

    message: Message
    """The assistant message as plain JSON: append it to the conversation."""
    finish_reason: str | None = None
    """The reason why the answer ends: "stop", "tool_calls", "length" (cut off), ...; None if the server sent none."""
    usage: Usage | None = None
    """The tokens of this request, None if the server sent none."""
    model: str | None = None
    """The name of the model that the server echoed."""

    @property
    def content(self) -> str:
        """The text of the message, its text parts joined; "" if it has none."""
        return text_of(self.message.get("content"))

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The calls of tools, as `{"id": ..., "function": {"name": ..., "arguments": ...}}`, with arguments as the
        model's text, which should be JSON."""
        return self.message.get("tool_calls") or []


MAX_REFUSAL = 300


def refusal_error(reply: ChatReply) -> ModelError | None:
    """Return the error for a reply in which the model, or a content filter in front of it, refuses to answer, or None.

    Anthropic's stop_reason "refusal" arrives here as a message with `refusal` and as finish_reason "content_filter".
    """
    text = refusal_of(reply.message)
    if text is not None:
        return refused(text)
    if reply.finish_reason == "content_filter":
        return ModelError(f"{FILTERED} (finish_reason content_filter)", boundary="model", systemic="never")
    return None


def refused(text: str) -> ModelError:
    """Return the error for a refusal with this text."""
    return ModelError(f"{REFUSED}{one_line(text, MAX_REFUSAL)}", boundary="model", systemic="never")


def copied(value: Any) -> Any:
    """Return a deep copy of JSON data. Raises `TypeError` for other data (even a tuple), `RecursionError` for a cycle.

    >>> copied([{"role": "user", "content": "2 + 2"}])
    [{'role': 'user', 'content': '2 + 2'}]
    """
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return value
    if kind is dict:
        copy = {}
        for key, item in value.items():
            if type(key) is not str:
                raise TypeError("a key is not a string")
            copy[key] = item if type(item) is str else copied(item)
        return copy
    if kind is list:
        return [copied(item) for item in value]
    if (kind is int and -LARGE_INT < value < LARGE_INT) or (kind is float and math.isfinite(value)):
        return value
    raise TypeError(f"{kind.__name__} is not JSON, or the number is out of bounds")


def own_copy(value: Any) -> Any:
    """Return a deep copy of JSON data. It may be nested as deeply as a parser allows, but must not contain itself."""
    if type(value) is not dict and type(value) is not list:
        return value
    holders: list[Any] = [value.copy()]
    for holder in holders:
        for place, item in holder.items() if type(holder) is dict else enumerate(holder):
            if type(item) is dict or type(item) is list:
                holder[place] = item.copy()
                holders.append(holder[place])
    return holders[0]


class HttpApi(Protocol):
    """An API over HTTP, as a module: its path below the address, its requests and replies as JSON."""

    PATH: str

    def write_request(self, request: ChatRequest, target: ModelTarget) -> bytes:
        """Return the body of a request.

        Raises `TypeError` or `ValueError` for messages, tools or sampling that JSON or the API cannot represent.
        """
        ...

    def read_reply(self, status: int, text: str, target: ModelTarget, failures: Failures) -> ChatReply:
        """Return the reply in the body of a 2xx answer.

        Raises `ModelError`: boundary "provider" if the body cannot be read, has other types or has too large a message,
        "model" if it has no message, and that of the error if the body reports one.
        """
        ...


class Model(Protocol):
    """A client of one model. One call of `chat` sends one request, and raises `ModelError` if it fails.

    Clients limit only the time to connect, because their timers would run on while user code holds the event loop.
    Callers enforce timeouts by cancelling.
    """

    async def chat(self, request: ChatRequest) -> ChatReply: ...

    async def close(self) -> None:
        """Close connections. A second call does nothing."""
        ...
