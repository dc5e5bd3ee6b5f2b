"""Agents, what a rollout sees of its run (the prompt, its row, and `chat`), and what an agent returned, checked.

An `Agent` is created once per host and used for all of its runs. Everything that belongs to one run is in the
`ChatContext` that it receives.

A function is `async def rollout(ctx)`, or `def rollout(ctx)` in a thread. A workflow of Osmosis 0.3 is a class whose
`run(ctx)` produces a conversation, with one instance per run. Classes are recognised by the name of a base class in
their MRO, so user code need not import ours. `chat` and `recorded` are built in. Source of the shapes:
osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType, NoneType
from typing import Any, Literal, NamedTuple, Protocol

from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.files import private
from pytest_osmosis.models.base import ChatReply, Message, copied, own_copy, refusal_error
from pytest_osmosis.text.chat_messages import recorded_conversation
from pytest_osmosis.text.user_code import UserValueFault, described, fields_of, metrics_of, type_name, user_stack

Chat = Callable[[Sequence[Message], Sequence[Mapping[str, Any]], Mapping[str, Any]], Awaitable[ChatReply]]


class ModelEndpoint(Protocol):
    """The endpoint of a rollout, where clients of its own ask its model."""

    @property
    def model(self) -> str:
        """The name of the model, as its server knows it."""

    def access(self) -> tuple[str, str]:
        """Return the URL of the endpoint, and the key for it."""


class _NoEndpoint:
    """The endpoint of a context that no eval made, as in tests of a user: there is none."""

    model = ""

    def access(self) -> tuple[str, str]:
        raise RuntimeError("this context has no endpoint: only the rollouts of an eval have one")


NO_ENDPOINT = _NoEndpoint()

RESERVED = {
    "model": "it always asks the eval's model; ask another one with a client of your own",
    "n": "call it again for another answer",
    "stream": "it returns whole replies",
}
"""The keys of a request that `chat` does not take, and the reasons. The config refuses them in `extra_body`."""


class ChatContext:
    """One run, as agent code sees it: `ctx` of `async def rollout(ctx)`, and of `AgentWorkflow.run`.

    Every run has its own, and may change what it finds there.
    """

    def __init__(
        self,
        *,
        prompt: Sequence[Message],
        metadata: Mapping[str, Any],
        row_index: int,
        run_index: int,
        max_turns: int,
        artifacts: str | Path,
        chat: Chat,
        sampling: Mapping[str, Any] = MappingProxyType({}),
        endpoint: ModelEndpoint = NO_ENDPOINT,
        model_tag: Literal["primary", "baseline"] = "primary",
    ) -> None:
        self.prompt: list[Message] = _own(prompt)
        """The row's chat messages: its `system_prompt` and `user_prompt`, or its `messages`."""
        self.metadata: dict[str, Any] = own_copy(metadata)
        """The whole row with all its columns, `ground_truth` included."""
        self.row_index: int = row_index
        """The position of the row in the dataset, from 0."""
        self.run_index: int = run_index
        """The number of this run among the `n` runs of the row, from 0."""
        self.model_tag: Literal["primary", "baseline"] = model_tag
        """Which of the eval's models `chat` asks: "primary", or "baseline" for the one that `[baseline]` adds."""
        self.model: str = endpoint.model
        """The name of the model, as its server knows it; `base_url` asks it, whatever name a client sends."""
        self.max_turns: int = max_turns
        """`[agent] max_turns`, 10 by default. If it was set, further requests are refused."""
        self.sampling: dict[str, Any] = own_copy(dict(sampling))
        """The parameters of `[sampling]`: `{"temperature": 0.5}`."""
        self.config: Any = None
        """This run's copy of the workflow's config (see `AgentWorkflowConfig`), None without one."""
        self.last_conversation: list[Message] | None = None
        self.last_refusal: ModelError | None = None
        self._artifacts = artifacts
        self._chat = chat
        self._endpoint = endpoint

    @property
    def base_url(self) -> str:
        """The URL for a client of OpenAI's chat completions or Anthropic's Messages, until the rollout is over.
        Requests there have the retries and limits of `chat`, and their tokens count.
        """
        return self._endpoint.access()[0]

    @property
    def api_key(self) -> str:
        """The key for `base_url`, which is no provider's key."""
        return self._endpoint.access()[1]

    @property
    def artifacts_dir(self) -> Path:
        """The folder for files of this run, in its eval run's folder; created on first access."""
        folder = Path(self._artifacts)
        private.make_folders(folder)
        return folder

    async def chat(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        **sampling: Any,
    ) -> ChatReply:
        """Send one request to the eval's model, with its retries, and return the reply.

        `messages` and `tools` have the shape of OpenAI's chat completions, whatever the provider. `sampling`
        (`temperature=0.2`, `max_tokens=500`, `tool_choice="required"`, ...) overrides the config for this request.
        Several calls may wait at once. Tokens of all calls count for the run. `extra_headers={...}` are HTTP headers of
        this request alone.

        Raises `BoundError` if the rollout may not ask again: it met `[agent] max_turns` or one of `[limits.rollout]`.
        Raises `ModelError` if the model gives no answer after all retries, rejects the request, or refuses to answer.
        Raises `TypeError` for the keys `model`, `n` and `stream`, and `RuntimeError` if it is awaited in another event
        loop, or after the rollout is over.
        """
        for name in sampling.keys() & RESERVED.keys():
            raise TypeError(f"ctx.chat takes no {name}: {RESERVED[name]}")
        sent = _own(messages)
        reply = await self._chat(sent, list(tools or ()), sampling)
        keep_conversation(self, sent, reply)
        if self.last_refusal is not None:
            raise self.last_refusal
        return reply


def keep_conversation(ctx: ChatContext, messages: Sequence[Message], reply: ChatReply) -> None:
    """Keep a request and its reply as the last conversation of a rollout, which it may return as None."""
    ctx.last_conversation = [*messages, reply.message]
    ctx.last_refusal = refusal_error(reply)


def _own(messages: Sequence[Message]) -> list[Message]:
    """Return a copy that shares nothing with `messages`, whatever an agent put into them."""
    try:
        own: list[Message] = copied(list(messages))
    except (TypeError, RecursionError):
        own = copy.deepcopy(list(messages))
    return own


class NotAConversation(TypeError):
    """An agent returned something other than a conversation."""


class RolloutOutput(NamedTuple):
    """The conversation, finite numbers by name, and plain JSON by name.

    `samples` are the fields of the samples that a Grader of `osmosis_ai` gets, as plain JSON; none if it gets the
    conversation and the metrics alone. `environment` is that of the `RolloutEvent`. By `state` an environment scores
    while its host lives.
    """

    messages: Sequence[Message]
    metrics: Mapping[str, float]
    info: Mapping[str, Any]
    samples: Sequence[Mapping[str, Any]] = ()
    environment: Mapping[str, Any] = MappingProxyType({})
    state: Any = None


class Agent(Protocol):
    """Turns a prompt into a conversation."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the conversation of one rollout, including the prompt, with the agent's own numbers and fields.

        Errors of the user's code are raised.
        """


def output_of(returned: object, ctx: ChatContext, who: str) -> RolloutOutput:
    """Return the output of an agent: a list of messages, an `AgentWorkflowOutput`, or None for the last `ctx.chat`.

    Raises `NotAConversation`, which says what is wrong with it.
    """
    if returned is None or isinstance(returned, list) or not hasattr(returned, "messages"):
        return RolloutOutput(_conversation(returned, ctx, who), {}, {})
    messages = _conversation(returned.messages, ctx, who)
    try:
        metrics = metrics_of(getattr(returned, "metrics", None))
        return RolloutOutput(messages, metrics, fields_of(getattr(returned, "info", None), "info"))
    except UserValueFault as fault:
        raise NotAConversation(f"{who}: {fault}") from None


def _conversation(returned: object, ctx: ChatContext, who: str) -> Sequence[Message]:
    """Return the messages that an agent returned, or, for None, those of its last `ctx.chat`."""
    if returned is None:
        if ctx.last_conversation is None:
            raise NotAConversation(f"{who} returned None and never called ctx.chat, so there is no conversation")
        if ctx.last_refusal is not None:
            raise ctx.last_refusal
        return ctx.last_conversation
    if not isinstance(returned, list):
        raise NotAConversation(f"{who} must return a list of messages or None, got {type_name(returned)}")
    for index, message in enumerate(returned):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise NotAConversation(f'{who}: message {index} must be a dict with a "role", got {described(message)}')
        content = message.get("content")
        if not isinstance(content, (str, list, tuple, NoneType)):  # it would be scored as an empty text
            got = f"{type_name(content)}: {described(content)}"
            raise NotAConversation(
                f"{who}: message {index}: content must be a string, a list of parts or None, got {got}"
            )
    return returned


# -- agents -----------------------------------------------------------------------------------------------


class FunctionAgent(Struct, frozen=True):
    """Calls the user's coroutine function `name` with the run's context."""

    name: str
    function: Callable[[ChatContext], Awaitable[Any]]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output; if the function returns None, the conversation of its last request."""
        return output_of(await self.function(ctx), ctx, f"{self.name}()")


class ThreadedFunctionAgent(Struct, frozen=True):
    """Calls the user's synchronous function `name` in a thread of its own, as clients that block need it."""

    name: str
    function: Callable[[ChatContext], Any]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output; if the function returns None, the conversation of its last request."""
        returned = await _in_thread(lambda: self.function(ctx), self.name)
        if inspect.isawaitable(returned):  # a decorator hid that the function is async
            returned = await returned
        return output_of(returned, ctx, f"{self.name}()")


async def _in_thread(call: Callable[[], Any], name: str) -> Any:
    """Return what `call` returns in a new thread, with the context of the caller.

    Nobody can end a thread. If the caller is cancelled, it goes on, and the error notes where it was.
    """
    context = copy_context()
    done: Future[tuple[Any, BaseException | None]] = Future()  # with the error, as a future cannot raise each one
    done.set_running_or_notify_cancel()  # the thread goes on after the caller

    def run() -> None:
        try:
            done.set_result((context.run(call), None))
        except BaseException as error:
            done.set_result((None, error))

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        returned, failure = await asyncio.wrap_future(done)
    except asyncio.CancelledError as error:
        stack = user_stack(sys._current_frames().get(thread.ident or 0))
        error.add_note(f"its thread was here, and goes on:\n{stack}")
        raise
    if failure is not None:
        raise failure
    return returned


class SingleTurn:
    """Sends the prompt and keeps the answer."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        reply = await ctx.chat(ctx.prompt)
        return RolloutOutput([*ctx.prompt, reply.message], {}, {})


class RecordedAgent:
    """Returns the conversation that its row holds."""

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        return RolloutOutput(recorded_conversation(ctx.prompt, ctx.metadata), {}, {})


@dataclass(slots=True)
class AgentWorkflowOutput:
    """The result of a workflow: the conversation, with numbers and notes of the workflow's own."""

    messages: list[Message] | None = None
    """The conversation, prompt included; None for that of the last `ctx.chat`."""
    metrics: dict[str, float] = field(default_factory=dict)
    """Finite numbers by name, which a Grader finds in `ctx.sample.metrics`. The summary shows their means."""
    info: dict[str, Any] = field(default_factory=dict)
    """Further facts by name, shown with the run; long values are shortened."""


@dataclass(slots=True)
class ConcurrencyConfig:
    """The limit of a workflow's or a Grader's config, in its attribute `concurrency`."""

    max_concurrent: int | None = None
    """The most rollouts, or scorings, in flight at once, in all processes together; None for any number. One that waits
    for a retry counts too."""


class AgentWorkflowConfig:
    """The base class of a workflow's config: attributes of the class are defaults, keywords replace them.

    An instance in the module of the workflow is its config. Each run gets a copy, as `ctx.config` and as the argument
    of `__init__`. A dataclass may derive from it too. An attribute `concurrency` limits the rollouts in flight.
    """

    def __init__(self, **values: Any) -> None:
        vars(self).update(values)


AgentWorkflowContext = ChatContext
"""A workflow's context is the run's `ChatContext`; its `config` is this run's copy of the workflow's config."""


class AgentWorkflow(ABC):
    """The base class of workflows, which define `run`. Every rollout gets a new instance.

    The module of an entrypoint holds one such class, and at most one `AgentWorkflowConfig`.
    """

    def __init__(self, config: Any = None) -> None:
        self.config: Any = config
        """This run's copy of the module's `AgentWorkflowConfig`, None without one."""

    @abstractmethod
    async def run(self, ctx: AgentWorkflowContext) -> AgentWorkflowOutput | list[Message] | None:
        """Return the conversation, prompt included, or None for that of the last `ctx.chat`."""


class WorkflowAgent(Struct, frozen=True):
    """Runs a workflow class."""

    workflow: type[Any]
    config: Any = None

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output of `run` of a new instance."""
        config = copy.deepcopy(self.config)
        ctx.config = config
        instance = self.workflow(config) if config is not None else self.workflow()
        return output_of(await instance.run(ctx), ctx, f"{self.workflow.__name__}.run()")
