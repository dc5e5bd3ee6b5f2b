"""The limits on one host's work, and how pauses and overloaded servers lower them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from pytest_osmosis.host.slots import ResizableSemaphore, Slots


class HostLimits:
    """Limits the rollouts (`slots`), requests and scorings in flight. Lower limits let those in flight finish.

    `on_change` is called whenever another rollout might begin. Used from one event loop only.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self.slots = Slots(limit, on_change)
        self.requests = ResizableSemaphore(limit)
        self.scorings = ResizableSemaphore(limit)
        self._limit = self._max_scorings = limit
        self._paused = False
        self._held_until = 0.0

    def resize(self, limit: int, begun: int, scorings: int) -> None:
        """Allow `limit` rollouts and requests, `begun` rollouts with those that wait, and this many `scorings`."""
        self._limit, self.slots.max_begun, self._max_scorings = limit, begun, scorings
        self._apply()

    def pause(self, paused: bool) -> None:
        """Begin no rollout, request or scoring until unpaused. The clocks of rollouts that wait for one are paused."""
        self._paused = paused
        self._apply()

    def hold(self, wait_s: float) -> None:
        """Begin no rollout and no request for `wait_s`, because the server has no room. Scoring continues."""
        loop = asyncio.get_running_loop()
        self._held_until = max(self._held_until, loop.time() + wait_s)
        loop.call_at(self._held_until, self._end_hold, self._held_until)
        self._apply()

    def _end_hold(self, held_until: float) -> None:
        if held_until == self._held_until:  # not extended since; comparing times would fail if a timer came early
            self._held_until = 0.0
            self._apply()

    def _apply(self) -> None:
        limit = 0 if self._paused else self._limit
        self.scorings.resize(0 if self._paused else self._max_scorings)
        for semaphore in (self.slots, self.requests):
            semaphore.resize(0 if self._held_until else limit)
