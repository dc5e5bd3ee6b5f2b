"""The limits on one host's work, and how pauses and overloaded servers lower them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Literal

from pytest_osmosis.host.slots import ResizableSemaphore, Scorings, Slots


class HostLimits:
    """Limits the rollouts (`slots`), requests, scorings and requests to judges in flight. Those in flight may finish.

    `on_change` is called whenever another rollout might begin. Used from one event loop only.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self.slots = Slots(limit, on_change)
        self.requests = ResizableSemaphore(limit)
        self.scorings = Scorings(limit)
        self.judge_requests = ResizableSemaphore(limit)
        self._limit = self._max_scorings = limit
        self._paused = False
        self._held_until = {"rollouts": 0.0, "judges": 0.0}

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
        self._hold("rollouts", wait_s)

    def hold_judges(self, wait_s: float) -> None:
        """Send no request to a judge for `wait_s`, because its server has no room."""
        self._hold("judges", wait_s)

    def _hold(self, held: Literal["rollouts", "judges"], wait_s: float) -> None:
        loop = asyncio.get_running_loop()
        until = self._held_until[held] = max(self._held_until[held], loop.time() + wait_s)
        loop.call_at(until, self._end_hold, held, until)
        self._apply()

    def _end_hold(self, held: Literal["rollouts", "judges"], until: float) -> None:
        if until == self._held_until[held]:  # not extended since; comparing times would fail if a timer came early
            self._held_until[held] = 0.0
            self._apply()

    def _apply(self) -> None:
        self.scorings.resize(0 if self._paused else self._max_scorings)
        self.slots.resize(0 if self._paused or self._held_until["rollouts"] else self._limit)
        requests = 0 if self._paused else max(1, self._limit)  # without a slot for others, those with one go on
        self.requests.resize(0 if self._held_until["rollouts"] else requests)
        self.judge_requests.resize(0 if self._held_until["judges"] else requests)
