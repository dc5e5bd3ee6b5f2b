"""Limits per minute: amounts are taken evenly, and never more than the limit in any minute.

Providers count what arrives by the minute, some by the second, and requests that are sent evenly arrive less evenly.
So a minute counts as 61 seconds, and capacity that was not used for a while is not made up for. Times are of one
monotonic clock.
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
        """Take an amount, whether it is free or not."""
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


def least_s(total: float, per_minute: int) -> float:
    """Return the fewest seconds in which `total` requests can be sent.

    >>> least_s(1, 60), least_s(61, 60)
    (0.0, 60.75)
    """
    return max(0.0, (total - 1) * WINDOW_S / per_minute - BURST_S)
