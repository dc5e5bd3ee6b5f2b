"""Notices: what the user should know about an eval besides its results.

One says that nothing has finished for long, and names what is waited for: it ends nothing, deadlines do. Another says
that hosts wait for a place on their cluster; those that have one go on meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from msgspec import Struct

from pytest_osmosis.engine.run_table import RunState, Stage
from pytest_osmosis.text.numbers import count, plural


class Notices:
    """`texts` are for the summary; `alerts` are those of them that the user should see at once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.alerts: list[str] = []

    def add(self, text: str) -> None:
        """Tell the user at the end."""
        self.texts.append(text)

    def announce(self, text: str) -> None:
        """Tell the user now. At the end it is said in another way, or no longer true."""
        self.alerts.append(text)

    def alert(self, text: str) -> None:
        """Tell the user now, and again at the end."""
        self.add(text)
        self.alerts.append(text)


MOST_NAMED = 5


class StallNotice(Struct):
    """Speaks once for each `patience_s` in which no run finished. Times are of one monotonic clock."""

    patience_s: float
    since: float
    n_done: int = 0
    n_notices: int = 0

    def check(self, now: float, n_done: int, states: Collection[RunState], n_queued: int) -> str | None:
        """Return the notice that is due, None if there is none."""
        if n_done != self.n_done or not (states or n_queued):
            self.n_done, self.since, self.n_notices = n_done, now, 0
            return None
        silent_s = now - self.since
        if silent_s < self.patience_s * (self.n_notices + 1):
            return None
        self.n_notices = int(silent_s / self.patience_s)
        return f"nothing has finished for {silent_s:.0f} s; waiting for: {waiting_for(states, n_queued, now)}"


def waiting_for(states: Collection[RunState], n_queued: int, now: float) -> str:
    """Name the runs under way, the longest waits first, and count the runs that have not begun."""
    begun = sorted((state for state in states if state.is_begun), key=lambda state: state.since)
    texts = [f"{state.run} ({activity(state)} for {now - state.since:.0f} s)" for state in begun[:MOST_NAMED]]
    if len(begun) > MOST_NAMED:
        texts.append(f"{len(begun) - MOST_NAMED} more under way")
    if n_unbegun := n_queued + len(states) - len(begun):
        texts.append(f"{n_unbegun} not begun")
    return ", ".join(texts)


def activity(state: RunState) -> str:
    """Describe what a run does now, after the boundary that it would fail at: provider, agent, reward or host."""
    if state.stage is Stage.ROLLING:
        if state.retrying:
            return "provider: waiting to retry"
        return "provider: held by a rate limit" if state.held else "agent: running"
    if state.running:
        return f"reward: in {next(iter(state.running.values()))}"
    return "reward: waiting for its score" if state.host or state.scorer else "host: waiting for a process to score it"


WAIT_S = 10.0
"""The user reads that hosts wait once they have done so for this long."""


class Waiting(NamedTuple):
    """The number of hosts that wait for a place on the cluster, and of all. `why` says what for."""

    n_waiting: int
    n_hosts: int
    why: str = ""

    @property
    def text(self) -> str:
        """One line, "" if no host waits.

        >>> Waiting(6, 8, "a host needs 2 CPUs").text
        '6 of 8 hosts wait for a place: a host needs 2 CPUs'
        """
        if not self.n_waiting:
            return ""
        if self.n_waiting == self.n_hosts:
            who = "the host has no place" if self.n_hosts == 1 else f"none of {count(self.n_hosts)} hosts has a place"
            return f"{who}: {self.why}"
        verb = "waits" if self.n_waiting == 1 else "wait"
        return f"{count(self.n_waiting)} of {plural(self.n_hosts, 'host')} {verb} for a place: {self.why}"


class WaitNotice(Struct):
    """Speaks once when hosts wait, unless that was `told` already, and once when none does any more."""

    told: bool = False
    since: float | None = None

    def check(self, now: float, waiting: Waiting) -> str | None:
        """Return the notice that is due, None if there is none. Times are of one monotonic clock."""
        if not waiting.n_hosts or bool(waiting.n_waiting) == self.told:
            self.since = None
            return None
        self.since = now if self.since is None else self.since
        if now - self.since < WAIT_S:
            return None
        self.told = not self.told
        alone = "the host has a place now" if waiting.n_hosts == 1 else ""
        return waiting.text or alone or f"all {count(waiting.n_hosts)} hosts have a place now"
