"""The notice that hosts wait for a place on their cluster. Hosts that have one go on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pytest_osmosis.text.numbers import count, plural

WAIT_S = 10.0
"""The user reads that hosts wait once they have done so for this long."""
PAUSE_S = 30.0
"""The least time between notices, as numbers change all the time on a cluster that others use."""


class Waiting(NamedTuple):
    """The number of hosts that wait for a place on the cluster, and of all. `why` says what for."""

    n_waiting: int
    n_hosts: int
    why: str = ""

    @property
    def all_wait(self) -> bool:
        return 0 < self.n_waiting == self.n_hosts

    @property
    def text(self) -> str:
        """One line, "" if no host waits.

        >>> Waiting(6, 8, "a host needs 2 CPUs").text
        '6 of 8 hosts wait for a place: a host needs 2 CPUs'
        """
        if not self.n_waiting:
            return ""
        if self.all_wait:
            who = "the host has no place" if self.n_hosts == 1 else f"none of {count(self.n_hosts)} hosts has a place"
            return f"{who}: {self.why}"
        verb = "waits" if self.n_waiting == 1 else "wait"
        return f"{count(self.n_waiting)} of {plural(self.n_hosts, 'host')} {verb} for a place: {self.why}"


@dataclass(slots=True)
class WaitNotice:
    """Speaks when hosts wait, when that changes much, and when it is over. Times are of one monotonic clock.

    The user knows of `told` hosts that wait.
    """

    told: int = 0
    told_all: bool = False
    since: float | None = None
    spoke_at: float = float("-inf")

    def check(self, now: float, waiting: Waiting) -> str | None:
        """Return the notice that is due, None if there is none."""
        if not self._is_news(waiting):
            self.since = None
            return None
        if self.since is None:
            self.since = now
        if now - self.since < WAIT_S or now - self.spoke_at < PAUSE_S:
            return None
        self.since, self.spoke_at = None, now
        self.told, self.told_all = waiting.n_waiting, waiting.all_wait
        if waiting.n_waiting:
            return waiting.text
        return (
            "the host has a place now"
            if waiting.n_hosts == 1
            else f"all {count(waiting.n_hosts)} hosts have a place now"
        )

    def _is_news(self, waiting: Waiting) -> bool:
        if not waiting.n_hosts:
            return False
        if waiting.all_wait != self.told_all or bool(waiting.n_waiting) != bool(self.told):
            return True
        return 4 * abs(waiting.n_waiting - self.told) >= waiting.n_hosts
