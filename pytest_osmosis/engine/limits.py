"""How much of something may be taken in a minute: evenly, and never more in any minute than the limit.

Providers count what arrives, by the minute, some by the second, and what is sent evenly may arrive less so. So a minute
is taken for a second longer than it is, and what was not taken for a while is not made up for. Times are of one
monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW_S = 61.0
"""A provider's minute, and a second for what takes longer to arrive than what was sent after it."""
BURST_S = 0.25
"""What could have been taken so long ago may still be: the engine, too, is late now and then."""


class Limits(NamedTuple):
    """What a provider allows; None: as much as one likes."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(slots=True, eq=False)
class Taken:
    """What was taken, and when. `counted` until its minute is over."""

    at: float
    amount: float
    counted: bool = True


@dataclass(slots=True)
class Rate:
    """At most `per_minute` in any minute. What is more than that by itself is had alone."""

    per_minute: int
    _taken: deque[Taken] = field(default_factory=deque)
    _sum: float = 0.0
    _next_at: float = float("-inf")

    def free_at(self, now: float, amount: float) -> float:
        """From when on `amount` may be taken, or looked for again."""
        self._forget(now)
        if self._taken and self._sum + amount > self.per_minute:
            return max(self._next_at, self._taken[0].at + WINDOW_S)
        return self._next_at

    def take(self, now: float, amount: float) -> Taken:
        """Take it, whether it is free or not."""
        taken = Taken(now, amount)
        self._taken.append(taken)
        self._sum += amount
        self._next_at = max(self._next_at, now - BURST_S) + self._worth_s(amount)
        return taken

    def correct(self, taken: Taken, amount: float) -> None:
        """It was so much in truth."""
        more, taken.amount = amount - taken.amount, amount
        self._next_at += self._worth_s(more)
        if taken.counted:
            self._sum += more

    def _forget(self, now: float) -> None:
        while self._taken and self._taken[0].at + WINDOW_S <= now:
            over = self._taken.popleft()
            over.counted = False
            self._sum -= over.amount

    def _worth_s(self, amount: float) -> float:
        return amount * WINDOW_S / self.per_minute


def least_s(total: float, per_minute: int) -> float:
    """Seconds that taking `total` needs at the least, where each takes one.

    >>> least_s(1, 60), least_s(61, 60)
    (0.0, 60.75)
    """
    return max(0.0, (total - 1) * WINDOW_S / per_minute - BURST_S)
