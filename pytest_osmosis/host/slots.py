"""How many rollouts may be in flight: `limit` hold a slot, at most twice as many are begun.

A rollout that waits for a retry gives its slot back meanwhile, so that a server's `Retry-After` does not idle the
others; when it goes on it comes before rollouts that have not begun. Used from one event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable


class Slots:
    """Counts held slots and begun rollouts; `changed` is called whenever another rollout might begin."""

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        self.limit = limit
        self.held = 0
        self.begun = 0
        self._changed = changed
        self._resuming: deque[asyncio.Future[None]] = deque()

    def begin(self) -> bool:
        """Take a slot for a new rollout; False where none is free."""
        if self.held >= self.limit or self._resuming or self.begun >= 2 * self.limit:
            return False
        self.held += 1
        self.begun += 1
        return True

    def end(self, *, holding: bool) -> None:
        """A rollout is over; `holding` says whether it still held its slot."""
        self.begun -= 1
        if holding:
            self.give_back()
        else:
            self._changed()

    def give_back(self) -> None:
        """Free a slot: for a rollout that wants to go on, else for a new one."""
        self.held -= 1
        self._hand_on()

    async def resume(self) -> None:
        """Wait for a slot and take it."""
        if self.held < self.limit and not self._resuming:
            self.held += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._resuming.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back()  # the slot came in the moment the wait was given up
            raise

    def take(self) -> None:
        """Take a slot without waiting, even beyond the limit: what holds it goes on in any case."""
        self.held += 1

    def resize(self, limit: int) -> None:
        """Change the limit; what is in flight stays."""
        self.limit = limit
        self._hand_on()

    def _hand_on(self) -> None:
        while self._resuming and self.held < self.limit:
            turn = self._resuming.popleft()
            if not turn.done():
                self.held += 1
                turn.set_result(None)
        self._changed()
