"""The notice that nothing has finished for long, which names what is waited for. It ends nothing: deadlines do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from pytest_osmosis.engine.run_state import RunState, Stage

MOST_NAMED = 5


@dataclass(slots=True)
class StallNotice:
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
