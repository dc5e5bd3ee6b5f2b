"""Deadlines that count only a rollout's own time: neither waits for its slot nor stalls of the loop by other code.

The `LoopMonitor` adds up in `StallTime` how long callbacks could not run. A `Deadline` leaves that time out, except for
stalls that its own run caused (`owe`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
        self._waits_since: float | None = None
        self._n_waits = 0
        self._stalls_at_pause = 0.0
        self._cancels = 0
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, seconds: float) -> None:
        """Count a stall after all: this run caused it."""
        self._owed_s += seconds

    def spent_s(self) -> float:
        """Return the run's own time so far."""
        paused_s = self._paused_s + self._pause_s() + self._blocked_wait_s()
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

    def pause_blocked(self) -> None:
        """Give back what is charged from now on to code that blocks the loop, as it only waits for others.

        Unlike `pause`, it is called from another thread, always the same one, and each call needs its `resume_blocked`.
        """
        self._n_waits += 1
        if self._waits_since is None:
            self._waits_since = self.loop.time()

    def resume_blocked(self) -> None:
        """Charge the code that blocks the loop again, once nothing of it waits any more."""
        self._n_waits -= 1
        if not self._n_waits:
            self._owed_s -= self._blocked_wait_s()
            self._waits_since = None  # last: the monitor, in its thread, must not find the wait charged

    def _blocked_wait_s(self) -> float:
        since = self._waits_since  # read once, for the monitor
        return 0.0 if since is None else self.loop.time() - since

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
