"""The client that an environment gets: every request that it sends goes to the eval's model.

verifiers' own client is used where the environment has imported it, with one method replaced: conversions, checks and
errors of verifiers stay its own, and no request passes HTTP twice. Objects that are no environments of verifiers get a
`PlainClient`.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

from pytest_osmosis.addons.verifiers import imported
from pytest_osmosis.errors import ModelError
from pytest_osmosis.files.reading import parsed
from pytest_osmosis.models.base import ChatReply, Message, usage_fields

CHAT_CLIENT = "clients.openai_chat_completions_client"
OVERLONG = (
    "this model's maximum context length is",
    "is longer than the model's context length",
    "is longer than the maximum model length",
    "exceeds the model's context length",
    "exceed the configured limit",
    "exceeds the configured limit",
    "exceeded model",
    "prompt_too_long",
    "context length",
    "maximum model length",
)
"""The texts by which verifiers recognises a prompt that is too long (its `handle_openai_overlong_prompt`)."""

Ask = Callable[[Sequence[Message], Sequence[Mapping[str, Any]], Mapping[str, Any], Any], Awaitable[ChatReply]]
"""Sends messages, tools and sampling for a state, which is None where the environment does not say."""
Endpoint = Callable[[], tuple[str, str]]
"""Returns the URL and the key of the rollout's endpoint."""


def client_for(ask: Ask, endpoint: Endpoint) -> Any:
    """Return the client for a rollout."""
    base = getattr(imported(CHAT_CLIENT), "OpenAIChatCompletionsClient", None)
    return PlainClient(ask, endpoint) if base is None else _client_type(base)(ask, endpoint)


class _WithOpenAI:
    """A client that holds an OpenAI client for the rollout's endpoint, for environments that use it."""

    def __init__(self, ask: Ask, endpoint: Endpoint) -> None:
        self._ask = ask
        self._endpoint = endpoint
        self._openai: Any = None

    @property
    def address(self) -> tuple[str, str]:
        """The URL of the rollout's endpoint, and the key for it."""
        return self._endpoint()

    @property
    def client(self) -> Any:
        if self._openai is None:
            import openai

            url, key = self._endpoint()
            self._openai = openai.AsyncOpenAI(base_url=url, api_key=key, max_retries=0)
        return self._openai

    @property
    def chat(self) -> Any:
        return self.client.chat

    async def close(self) -> None:
        """Close what was used. Connections to the model belong to the host."""
        if self._openai is not None:
            await self._openai.close()


@functools.cache
def _client_type(base: Any) -> Any:
    """Return a class that derives from verifiers' client of chat completions.

    `get_native_response` is the method in which that client sends its request, and `raise_from_native_response` and
    `from_native_response` read what it returns. If they change, rewards differ from those of verifiers, which
    tests/verifiers notices.
    """

    class EvalClient(_WithOpenAI, base):  # type: ignore[misc]
        """A client of verifiers that asks the eval's model."""

        def __init__(self, ask: Ask, endpoint: Endpoint) -> None:
            _WithOpenAI.__init__(self, ask, endpoint)
            base.__init__(self, None)

        async def get_native_response(
            self, prompt: Any, model: str, sampling_args: Any, tools: Any = None, **kwargs: Any
        ) -> SimpleNamespace:
            messages = [chat_message(message) for message in prompt]
            sampling = body_of(sampling_args)
            headers = {**sampling.pop("extra_headers", {}), **(kwargs.get("extra_headers") or {})}
            if headers:
                sampling["extra_headers"] = headers
            try:
                return _native_reply(await self._ask(messages, tools or (), sampling, kwargs.get("state")))
            except ModelError as error:
                if error.status == 400 and any(text in f"{error}\n{error.details}".lower() for text in OVERLONG):
                    raise sys.modules[base.__module__].OverlongPromptError from error
                raise

    return EvalClient


def body_of(sampling_args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return arguments of OpenAI's client as keys of a request's body, without those that are None.

    >>> body_of({"n": 1, "temperature": 0.5, "top_p": None, "extra_body": {"top_k": 5}})
    {'temperature': 0.5, 'top_k': 5}
    """
    given = {**(sampling_args or {})}
    n = given.pop("n", None)
    if n not in (None, 1):
        raise ValueError(f"sampling_args: n must be 1, got {n!r}: each rollout has one answer to each request")
    further = given.pop("extra_body", None) or {}
    for name in ("extra_query", "timeout"):
        given.pop(name, None)
    return {name: value for name, value in {**given, **further}.items() if value is not None}


def _native_reply(reply: ChatReply) -> SimpleNamespace:
    """Return an object with the attributes of OpenAI's `ChatCompletion` that verifiers reads: one is slow to make."""
    read = {name: reply.message.get(name) for name in ("content", "refusal", "tool_calls")}
    message = SimpleNamespace(role="assistant", model_dump=partial(dict, reply.message), **read)
    choice = SimpleNamespace(index=0, model_extra={}, finish_reason=reply.finish_reason, message=message)
    usage = None if reply.usage is None else usage_fields(reply.usage)
    return SimpleNamespace(id="", created=0, model=reply.model or "", choices=[choice], usage=usage)


class PlainClient(_WithOpenAI):
    """The client of an environment without verifiers."""

    async def get_response(
        self,
        prompt: Sequence[Message] | str,
        model: str = "",
        sampling_args: Mapping[str, Any] | None = None,
        tools: Sequence[Any] | None = None,
        *,
        state: Any = None,
        **_further: Any,
    ) -> SimpleNamespace:
        """Send one request to the eval's model, whatever `model` is.

        The `message` of the reply is a chat message with its members as attributes too, `usage` is None if unknown.
        """
        given = [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt
        messages = [chat_message(message) for message in given]
        reply = await self._ask(messages, [*map(_tool, tools or ())], body_of(sampling_args), state)
        message = PlainMessage(reply.message)
        message.finish_reason = reply.finish_reason
        message.is_truncated = reply.finish_reason == "length"
        usage = None if reply.usage is None else usage_fields(reply.usage)
        return SimpleNamespace(id="", model=reply.model or "", usage=usage, message=message)


def _tool(tool: Any) -> Mapping[str, Any]:
    """Return a tool in the shape of chat completions. verifiers' own are flat: name, description, parameters."""
    tool = tool if isinstance(tool, Mapping) else tool.model_dump(exclude_none=True)
    return tool if "function" in tool or "name" not in tool else {"type": "function", "function": dict(tool)}


class PlainMessage(dict[str, Any]):
    """A chat message, whose members are attributes too: None where it has none of that name."""

    finish_reason: str | None = None
    is_truncated: bool = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.get(name)


MESSAGES = "utils.message_utils"


def chat_message(message: Any) -> Message:
    """Return a message of verifiers, or a chat message, as a chat message.

    >>> chat_message({"role": "assistant", "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}]})["tool_calls"]
    [{'id': '1', 'type': 'function', 'function': {'name': 'f', 'arguments': '{}'}}]
    >>> chat_message({"role": "text", "content": "2 + 2 = "})
    {'role': 'user', 'content': '2 + 2 = '}
    """
    data = _data(message)
    plain = {name: _plain(value) for name, value in data.items() if value is not None or name == "content"}
    if plain.get("role") == "text":
        plain["role"] = "user"
    calls = plain.get("tool_calls")
    if isinstance(calls, (list, tuple)):
        if calls:
            plain["tool_calls"] = [tool_call(call) for call in calls]
        else:
            del plain["tool_calls"]
    return plain


def chat_messages(value: Any) -> list[Message]:
    """Return the messages of a prompt or a completion. A text is one message of the user."""
    if value is None:
        return []
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    return [chat_message(message) for message in value]


def is_message(value: object) -> bool:
    """Return True for a message of verifiers. Plain dictionaries are data like any other."""
    return hasattr(value, "model_dump") and hasattr(value, "role") and hasattr(value, "content")


def environment_messages(messages: Iterable[Message]) -> list[Any]:
    """Return chat messages as the environment has them: as those of verifiers if it has imported verifiers."""
    normalize: Callable[[list[Any]], list[Any]] | None
    normalize = getattr(imported(MESSAGES), "normalize_messages", None)
    given = [dict(message) for message in messages]
    return given if normalize is None else normalize(given)


def _data(message: Any) -> Mapping[str, Any]:
    if isinstance(message, Mapping):
        return message
    if hasattr(message, "model_dump"):
        data: dict[str, Any] = message.model_dump(exclude_none=True)
        return data | {"content": getattr(message, "content", None)}
    if isinstance(message, str):
        return {"role": "user", "content": message}
    raise TypeError(f"a message must be a mapping or a message of verifiers, got {type(message).__name__}")


def _plain(value: Any) -> Any:
    """Return the data of models of pydantic, which an environment may put anywhere into a message."""
    if hasattr(value, "model_dump"):
        return value.model_dump(exclude_none=True)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def tool_call(call: Any) -> Mapping[str, Any]:
    """Return a tool call in the shape of chat completions. In verifiers it is flat, and JSON text in its files.

    Raises `ValueError` for what is none.

    >>> tool_call('{"id": "c1", "name": "add", "arguments": "{}"}')
    {'id': 'c1', 'type': 'function', 'function': {'name': 'add', 'arguments': '{}'}}
    """
    if isinstance(call, str):
        call = parsed(call)
    if not isinstance(call, Mapping):
        raise ValueError(f"a tool call must be a mapping, got {type(call).__name__}")
    if "function" in call or "name" not in call:
        return call
    function = {"name": call["name"], "arguments": call.get("arguments", "{}")}
    return {"id": call.get("id"), "type": "function", "function": function}
