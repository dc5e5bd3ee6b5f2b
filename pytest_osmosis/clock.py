"""The time by which the package decides: a `Clock` that is passed in, so that a test can have one that it advances.

Threads use it. Code on an event loop needs none: `asyncio.sleep`, `asyncio.timeout` and timers go by the time of their
loop.
"""

from __future__ import annotations

import time
from queue import SimpleQueue
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """A clock that never goes back, and the two ways to let time pass."""

    def now(self) -> float:
        """Return the time in seconds."""

    def sleep(self, seconds: float) -> None:
        """Return after that many seconds."""

    def wait(self, inbox: SimpleQueue[T], timeout_s: float) -> T:
        """Return the next item of `inbox`; raise `queue.Empty` if none arrives in time."""


class SystemClock:
    """The clock of this machine. User code that replaces functions of `time` does not change it."""

    now = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    @staticmethod
    def wait(inbox: SimpleQueue[T], timeout_s: float) -> T:
        return inbox.get(timeout=timeout_s)


SYSTEM = SystemClock()
