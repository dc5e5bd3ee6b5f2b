"""Deadlines that count only a rollout's own time: not its waits for a slot, not a loop that others held up.

`Stalls` is fed by the watch and knows for how long callbacks could not run. A `Deadline` leaves those stretches out,
but for the ones that its own run caused (`owe`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import TracebackType
from typing import Any

CANCEL_AGAIN_S = 1.0
"""Code that swallows its cancellation is cancelled again after this long."""


class Stalls:
    """Seconds for which the event loop could not run callbacks, in all."""

    def __init__(self) -> None:
        self.total_s = 0.0


class DeadlineExpired(TimeoutError):
    """The time of a `Deadline` ran out."""


Stuck = Callable[["asyncio.Task[Any]", int], None]
"""Told that a task does not end though it was cancelled so many times."""


class Deadline:
    """An async context that cancels its task once `budget_s` of the run's own time is spent.

    Leaving it then raises `DeadlineExpired`, whatever the code inside made of the cancellation. `loop` is the event
    loop that it is used from.
    """

    def __init__(self, budget_s: float, stalls: Stalls, stuck: Stuck) -> None:
        self.budget_s = budget_s
        self.expired = False
        self._stalls = stalls
        self._stuck = stuck
        self.loop = asyncio.get_running_loop()
        self._begun = self.loop.time()
        self._stalls_before = stalls.total_s
        self._owed_s = 0.0
        self._paused_s = 0.0
        self._paused_at: float | None = None
        self._stalls_at_pause = 0.0
        self._cancels = 0
        self._timer: asyncio.TimerHandle | None = None

    def owe(self, seconds: float) -> None:
        """Count a stall after all: this run caused it."""
        self._owed_s += seconds

    def spent_s(self) -> float:
        """The run's own time so far."""
        paused_s = self._paused_s + self._pause_s()
        stalled_s = self._stalls.total_s - self._stalls_before
        return self.loop.time() - self._begun - paused_s - stalled_s + self._owed_s

    def remaining_s(self) -> float:
        """What is left of the budget, 0 at the least."""
        return max(0.0, self.budget_s - self.spent_s())

    def pause(self) -> None:
        """Stop the clock. Idempotent."""
        if self._paused_at is None:
            self._stalls_at_pause, self._paused_at = self._stalls.total_s, self.loop.time()

    def resume(self) -> None:
        """Let the clock run again. Idempotent."""
        self._paused_s += self._pause_s()
        self._paused_at = None

    def _pause_s(self) -> float:
        """How long the clock stands still by now. Stalls meanwhile are left out on their own, and may be owed."""
        paused_at = self._paused_at  # read once: the watch asks from its thread
        if paused_at is None:
            return 0.0
        return self.loop.time() - paused_at - (self._stalls.total_s - self._stalls_at_pause)

    async def __aenter__(self) -> Deadline:
        task = asyncio.current_task()
        assert task is not None
        self._task: asyncio.Task[Any] | None = task
        self._cancelling = task.cancelling()
        self._begun = self.loop.time()
        self._stalls_before = self._stalls.total_s
        self._arm(self.budget_s)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._timer is not None:
            self._timer.cancel()
        task, self._task = self._task, None  # who keeps the deadline by its task would keep both for good
        if not self.expired or task is None:
            return
        for _ in range(self._cancels):
            task.uncancel()
        if task.cancelling() <= self._cancelling:
            raise DeadlineExpired from error

    def _arm(self, delay_s: float) -> None:
        self._timer = self.loop.call_later(delay_s, self._check)

    def _check(self) -> None:
        left = self.remaining_s()
        if left > 0:
            self._arm(max(left, 0.01))
            return
        assert self._task is not None, "the timer ends with the context"
        self.expired = True
        self._cancels += 1
        self._task.cancel()
        if self._cancels > 1:
            self._stuck(self._task, self._cancels - 1)
        self._arm(CANCEL_AGAIN_S)
