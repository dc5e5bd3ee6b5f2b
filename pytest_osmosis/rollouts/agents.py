"""Agents that return a conversation: functions, workflows, and the built-in `chat` and `recorded`.

A function is `async def rollout(ctx)`, or `def rollout(ctx)` in a thread. A workflow of Osmosis 0.3 is a class whose
`run(ctx)` produces a conversation, with one instance per run. Classes are recognised by the name of a base class in
their MRO, so user code need not import ours. Source of the shapes: osmosis_ai.rollout, SDK 0.3.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any

from pytest_osmosis.models.base import Message
from pytest_osmosis.rollouts.context import ChatContext, RolloutOutput, output_of
from pytest_osmosis.text.chat_messages import recorded_conversation
from pytest_osmosis.text.user_code import user_stack


@dataclass(frozen=True, slots=True)
class FunctionAgent:
    """Calls the user's coroutine function `name` with the run's context."""

    name: str
    function: Callable[[ChatContext], Awaitable[Any]]

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output; if the function returns None, the conversation of its last request."""
        return output_of(await self.function(ctx), ctx, f"{self.name}()")


@dataclass(frozen=True, slots=True)
class ThreadedFunctionAgent:
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
    """Finite numbers by name, such as the number of turns. A Grader finds them in `ctx.sample.metrics`, and the summary
    shows their means."""
    info: dict[str, Any] = field(default_factory=dict)
    """Further facts by name, which are kept and shown with the run. Long values are shortened."""


@dataclass(slots=True)
class ConcurrencyConfig:
    """The limit of a workflow's or a Grader's config, in its attribute `concurrency`."""

    max_concurrent: int | None = None
    """The most rollouts, or scorings, that are in flight at once, in all processes together; None for any number. A
    rollout that waits for a retry counts too. `batch_size` may be lower."""


class AgentWorkflowConfig:
    """The base class of a workflow's config: attributes of the class are defaults, keywords replace them.

    An instance in the module of the workflow is its config. Each run gets a copy, as `ctx.config`, and as the argument
    of the workflow's `__init__`. A dataclass may derive from it too. An attribute `concurrency` limits the rollouts in
    flight (see `ConcurrencyConfig`).
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


@dataclass(frozen=True, slots=True)
class WorkflowAgent:
    """Runs a workflow class."""

    workflow: type[Any]
    config: Any = None

    async def roll(self, ctx: ChatContext) -> RolloutOutput:
        """Return the checked output of `run` of a new instance."""
        config = copy.deepcopy(self.config)
        ctx.config = config
        instance = self.workflow(config) if config is not None else self.workflow()
        return output_of(await instance.run(ctx), ctx, f"{self.workflow.__name__}.run()")
