"""The notice that hosts wait for a place on their cluster. Hosts that have one go on meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from pytest_osmosis.text.numbers import count, plural

WAIT_S = 10.0
"""The user reads that hosts wait once they have done so for this long."""
ALL_WAIT_S = 5.0
"""The same, if none has a place."""
START_S = 30.0
"""The same, if none has a place and nobody says why."""
PAUSE_S = 30.0
"""The least time between notices, as numbers change all the time on a cluster that others use."""


class Waiting(NamedTuple):
    """The number of hosts that wait for a place as the cluster lacks room, of those without one, and of all hosts.

    `why` says what they wait for.
    """

    n_waiting: int
    n_unplaced: int
    n_hosts: int
    why: str = ""

    @property
    def all_wait(self) -> bool:
        return 0 < self.n_waiting == self.n_hosts

    @property
    def text(self) -> str:
        """One line, "" if no host waits.

        >>> Waiting(6, 6, 8, "the cluster has room for 2 now; the others need 6 CPUs").text
        '6 of 8 hosts wait for a place: the cluster has room for 2 now; the others need 6 CPUs'
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
    is_slow: bool = False

    def check(self, now: float, waiting: Waiting) -> str | None:
        """Return the notice that is due, None if there is none."""
        if not self._is_news(waiting):
            self.since = None
            return None
        if self.since is None:
            self.since = now
        if now - self.since < _patience_s(waiting) or now - self.spoke_at < PAUSE_S:
            return None
        self.since, self.spoke_at = None, now
        self.told, self.told_all = waiting.n_waiting, waiting.all_wait
        if waiting.n_waiting:
            return waiting.text
        if waiting.n_unplaced:
            self.is_slow = True
            return "no host has started yet; Ray is still preparing (an upload or a runtime_env takes a while)"
        return (
            "the host has a place now"
            if waiting.n_hosts == 1
            else f"all {count(waiting.n_hosts)} hosts have a place now"
        )

    def _is_news(self, waiting: Waiting) -> bool:
        if not waiting.n_hosts:
            return False
        if not waiting.n_waiting and waiting.n_unplaced:
            return waiting.n_unplaced == waiting.n_hosts and not (self.told or self.is_slow)
        if waiting.all_wait != self.told_all or bool(waiting.n_waiting) != bool(self.told):
            return True
        return 4 * abs(waiting.n_waiting - self.told) >= waiting.n_hosts


def _patience_s(waiting: Waiting) -> float:
    if waiting.all_wait:
        return ALL_WAIT_S
    return START_S if waiting.n_unplaced and not waiting.n_waiting else WAIT_S
