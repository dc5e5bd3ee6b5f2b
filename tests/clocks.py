"""Clocks that stand still until a test advances them, for threads and for event loops."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from queue import Empty, SimpleQueue
from typing import TypeVar

T = TypeVar("T")

DEADLINE_S = 60.0
LOOK_S = 0.005
TURNS = 20
"""The turns of an event loop in which everything happens that is due and waits for nobody."""


class SteppedClock:
    """A clock for one thread, whose turns the test takes: `sleep` advances it, and `wait` takes what is there."""

    def __init__(self, now: float = 1000.0) -> None:
        self.time = now

    def now(self) -> float:
        return self.time

    def advance(self, seconds: float) -> None:
        self.time += seconds

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)

    def wait(self, inbox: SimpleQueue[T], timeout_s: float) -> T:
        return inbox.get_nowait()


class ThreadClock(SteppedClock):
    """A clock for another thread, which gets messages at once, and for whom time passes only as the test advances it.

    What the thread sleeps takes no time. What the test adds while the thread works counts as waited.
    """

    def __init__(self) -> None:
        super().__init__()
        self._waits_since = self.time

    def sleep(self, seconds: float) -> None:
        """Return at once."""

    def wait(self, inbox: SimpleQueue[T], timeout_s: float) -> T:
        until = self._waits_since + timeout_s
        try:
            while self.time < until:
                with contextlib.suppress(Empty):
                    return inbox.get(timeout=LOOK_S)
            return inbox.get_nowait()
        finally:
            self._waits_since = self.time


class LoopClock:
    """The time of the running event loop from now on. What comes from other processes or threads needs none of it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self.time = float(math.floor(self._loop.time()))  # sums of whole seconds are exact
        self._loop.time = self.now  # type: ignore[method-assign]

    def now(self) -> float:
        return self.time

    async def advance(self, seconds: float) -> None:
        """Let time pass, and what is due then happen."""
        self.time += seconds
        await settled()


async def settled() -> None:
    """Let everything happen that is due."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def ended(task: asyncio.Task[T]) -> T:
    """Return the result of a task that needs no more of a loop's time; fails after a deadline."""
    end = time.monotonic() + DEADLINE_S
    while not task.done():
        assert time.monotonic() < end, "the task hangs"
        await asyncio.to_thread(time.sleep, 0.002)
    return await task
