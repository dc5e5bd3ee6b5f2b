"""Clocks that stand still until a test advances them, for threads and for event loops."""

from __future__ import annotations

from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


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
