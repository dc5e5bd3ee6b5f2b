"""Limits of requests: what may be sent in a minute, and how many runs may be in flight while a server has no room.

Amounts are taken evenly, and never more than the limit in any minute. Providers count what arrives by the minute, some
by the second, and requests that are sent evenly arrive less evenly. So a minute counts as 61 seconds, and capacity that
was not used for a while is not made up for. Times are of one monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW_S = 61.0
"""A provider's minute, and a second for requests that are overtaken on their way."""
BURST_S = 0.25
"""Capacity that was not used for up to this long can still be used, as the engine may be late."""


class Limits(NamedTuple):
    """The limits of a provider; None: no limit."""

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None


@dataclass(slots=True, eq=False)
class Charge:
    """An amount charged to a limit at a time. It is `counted` until its minute is over."""

    at: float
    amount: float
    counted: bool = True


@dataclass(slots=True)
class Rate:
    """At most `per_minute` in any minute. An amount larger than that is let through on its own."""

    per_minute: int
    _charges: deque[Charge] = field(default_factory=deque)
    _sum: float = 0.0
    _next_at: float = float("-inf")

    def free_at(self, now: float, amount: float) -> float:
        """Return when `amount` may be taken, or when to try again."""
        self._forget(now)
        if self._charges and self._sum + amount > self.per_minute:
            return max(self._next_at, self._charges[0].at + WINDOW_S)
        return self._next_at

    def take(self, now: float, amount: float) -> Charge:
        charge = Charge(now, amount)
        self._charges.append(charge)
        self._sum += amount
        self._next_at = max(self._next_at, now - BURST_S) + self._worth_s(amount)
        return charge

    def correct(self, charge: Charge, amount: float) -> None:
        """Replace an estimated amount by the actual one."""
        more, charge.amount = amount - charge.amount, amount
        self._next_at += self._worth_s(more)
        if charge.counted:
            self._sum += more

    def _forget(self, now: float) -> None:
        while self._charges and self._charges[0].at + WINDOW_S <= now:
            charge = self._charges.popleft()
            charge.counted = False
            self._sum -= charge.amount

    def _worth_s(self, amount: float) -> float:
        return amount * WINDOW_S / self.per_minute


@dataclass(slots=True)
class Throttle:
    """`ceiling` starts at `limit` and is never above it, nor below `floor`. Times are of one monotonic clock."""

    limit: int
    floor: int = 1
    ceiling: int = field(init=False)
    least: int = field(init=False)
    pauses: int = 0
    paused_s: float = 0.0
    until: float = 0.0
    _finished: int = 0

    def __post_init__(self) -> None:
        self.ceiling = self.least = self.limit

    def refused(self, now: float, wait_s: float) -> None:
        """Pause for `wait_s`. Requests that were sent before a pause and are refused during it do not count again."""
        if now >= self.until:
            self.pauses += 1
            self.ceiling = max(self.floor, self.ceiling // 2)
            self.least = min(self.least, self.ceiling)
            self._finished = 0
        self.paused_s += max(0.0, now + wait_s - max(now, self.until))
        self.until = max(self.until, now + wait_s)

    def paused_s_before(self, now: float) -> float:
        """Return for how long there were pauses so far."""
        return self.paused_s - max(0.0, self.until - now)

    def finished(self) -> None:
        """Count a rollout. After each round of `ceiling` rollouts a quarter more may be in flight."""
        self._finished += 1
        if self._finished >= self.ceiling:
            self._finished = 0
            self.ceiling = min(self.limit, self.ceiling + max(1, self.ceiling // 4))
