"""The minimal contract: `async def rollout(ctx)` that returns the conversation, or `def rollout(ctx)` in a thread."""

from __future__ import annotations

import asyncio
import inspect
import sys
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.rollouts.context import ChatContext
from pytest_osmosis.rollouts.output import RolloutOutput, output_of
from pytest_osmosis.text.user_frames import user_stack


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
    done: Future[Callable[[], Any]] = Future()  # of an outcome: a future cannot raise each error
    done.set_running_or_notify_cancel()  # the thread goes on after the caller

    def run() -> None:
        try:
            returned = context.run(call)
        except BaseException as error:
            done.set_result(_raising(error))
        else:
            done.set_result(lambda: returned)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        outcome = await asyncio.wrap_future(done)
    except asyncio.CancelledError as error:
        stack = user_stack(sys._current_frames().get(thread.ident or 0))
        error.add_note(f"its thread was here, and goes on:\n{stack}")
        raise
    return outcome()


def _raising(error: BaseException) -> Callable[[], Any]:
    def outcome() -> Any:
        raise error

    return outcome
