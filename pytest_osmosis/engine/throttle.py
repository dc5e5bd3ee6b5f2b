"""The pauses of an eval while servers have no room, and how many runs may be in flight after each."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class Throttle:
    """The most runs that may be in flight while servers have no room: `ceiling`, from `floor` to `limit`.

    Times are of one monotonic clock.
    """

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
