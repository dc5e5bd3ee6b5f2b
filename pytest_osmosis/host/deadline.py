"""Deadlines that count only a rollout's own time: neither waits for its slot nor stalls of the loop by other code.

The `LoopMonitor` adds up in `StallTime` how long callbacks could not run. A `Deadline` leaves that time out, except for
stalls that its own run caused (`owe`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

CANCEL_AGAIN_S = 1.0
"""Code that swallows its cancellation is cancelled again after this long."""


class StallTime:
    """The seconds, in all, during which the event loop could not run callbacks."""

    def __init__(self) -> None:
        self.total_s = 0.0


class DeadlineExpired(TimeoutError):
    """The time of a `Deadline` ran out."""


OnStuck = Callable[["asyncio.Task[Any]", int], None]
"""Receives a task that did not end, and how often it has been cancelled."""


def running_task() -> asyncio.Task[Any]:
    """Return the task in which the calling coroutine runs."""
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("no task is running")
    return task


class Deadline:
    """An async context that cancels its task once `budget_s` of the run's own time is spent.

    Leaving it then raises `DeadlineExpired`, whatever the code inside did with the cancellation. `loop` is the event
    loop that it is used from.
    """

    def __init__(self, budget_s: float, stalls: StallTime, on_stuck: OnStuck) -> None:
        self.budget_s = budget_s
        self.expired = False
        self.loop = asyncio.get_running_loop()
        self._stalls = stalls
        self._on_stuck = on_stuck
        self._begun = self.loop.time()
        self._stalls_before = stalls.total_s
        self._owed_s = 0.0
        self._paused_s = 0.0
        self._paused_at: float | None = None
        self._frozen_s: float | None = None
        self._n_waits = self._n_works = 0
        self._stalls_at_pause = 0.0
        self._cancels = 0
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, seconds: float) -> None:
        """Count a stall after all: this run caused it."""
        self._owed_s += seconds

    def spent_s(self) -> float:
        """Return the run's own time so far."""
        frozen_s = self._frozen_s  # read once, for the monitor
        return self._running_s() if frozen_s is None else frozen_s

    def _running_s(self) -> float:
        paused_s = self._paused_s + self._pause_s()
        stalled_s = self._stalls.total_s - self._stalls_before
        return self.loop.time() - self._begun - paused_s - stalled_s + self._owed_s

    def remaining_s(self) -> float:
        """Return the rest of the budget, at least 0."""
        return max(0.0, self.budget_s - self.spent_s())

    def pause(self) -> None:
        if self._paused_at is None:
            self._stalls_at_pause, self._paused_at = self._stalls.total_s, self.loop.time()

    def resume(self) -> None:
        self._paused_s += self._pause_s()
        self._paused_at = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def paused_blocked(self) -> Iterator[None]:
        """A context in which no time is spent, even if the run holds the loop meanwhile: it only waits for others.

        Unlike `paused`, it is entered in another thread, always the same one, and may be entered several times.
        """
        self.count_blocked(waits=1)
        try:
            yield
        finally:
            self.count_blocked(waits=-1)

    def count_blocked(self, *, waits: int = 0, works: int = 0) -> None:
        """Count requests of the run that wait for others, and those that do not: while there are any, time is spent."""
        self._n_waits += waits
        self._n_works += works
        is_paused, frozen_s = self._n_waits > 0 and not self._n_works, self._frozen_s
        if is_paused and frozen_s is None:
            self._frozen_s = self._running_s()
        elif not is_paused and frozen_s is not None:
            self._owed_s -= self._running_s() - frozen_s
            self._frozen_s = None  # last: the monitor, in its thread, must not find the wait charged

    def _pause_s(self) -> float:
        """Return the length of the current pause, without its stalls: those are left out separately, or owed."""
        paused_at = self._paused_at  # read once, because the monitor calls this from its thread
        if paused_at is None:
            return 0.0
        return self.loop.time() - paused_at - (self._stalls.total_s - self._stalls_at_pause)

    async def __aenter__(self) -> Deadline:
        task = running_task()
        self._task: asyncio.Task[Any] | None = task
        self._cancelling = task.cancelling()
        self._begun = self.loop.time()
        self._stalls_before = self._stalls.total_s
        self._arm(task, self.budget_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None  # whatever maps tasks to deadlines would otherwise keep both alive
        if not self.expired or task is None:
            return
        for _ in range(self._cancels):
            task.uncancel()
        if task.cancelling() <= self._cancelling:
            raise DeadlineExpired from error

    def _arm(self, task: asyncio.Task[Any], delay_s: float) -> None:
        self._timer = self.loop.call_later(delay_s, self._check, task)

    def _check(self, task: asyncio.Task[Any]) -> None:
        left_s = self.remaining_s()
        if left_s > 0:
            self._arm(task, max(left_s, 0.01))
            return
        self.expired = True
        self._cancels += 1
        task.cancel()
        if self._cancels > 1:
            self._on_stuck(task, self._cancels - 1)
        self._arm(task, CANCEL_AGAIN_S)


def brief_deadlines(stalls: StallTime) -> Callable[[float], Deadline]:
    """Return what makes the deadline of a single request, by its seconds."""
    return lambda seconds: Deadline(seconds, stalls, lambda task, times: None)
