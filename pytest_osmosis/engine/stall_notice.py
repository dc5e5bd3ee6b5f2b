"""Says what is waited for once nothing has finished for long. It ends nothing: deadlines do that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pytest_osmosis.engine.run_state import RunState

MOST_NAMED = 5


@dataclass(slots=True)
class Watchdog:
    """Barks once for each `patience_s` without progress. Times are of one monotonic clock."""

    patience_s: float
    since: float
    finished: int = 0
    silences: int = 0

    def look(self, now: float, finished: int, flights: Sequence[RunState], queued: int) -> str | None:
        """What to say, None where there is nothing to say; `finished` counts the runs that are done."""
        if finished != self.finished or not (flights or queued):
            self.finished, self.since, self.silences = finished, now, 0
            return None
        silent_s = now - self.since
        if silent_s < self.patience_s * (self.silences + 1):
            return None
        self.silences = int(silent_s / self.patience_s)
        return f"nothing has finished for {silent_s:.0f} s; waited for: {waited_for(flights, queued, now)}"


def waited_for(flights: Sequence[RunState], queued: int, now: float) -> str:
    """The runs that are under way, those that are longest where they are first, and how many are queued."""
    begun = sorted((flight for flight in flights if flight.begun or flight.rolled), key=lambda flight: flight.since)
    named = [f"{flight.run} ({stage_of(flight)} for {now - flight.since:.0f} s)" for flight in begun[:MOST_NAMED]]
    if len(begun) > MOST_NAMED:
        named.append(f"{len(begun) - MOST_NAMED} more under way")
    if waiting := queued + len(flights) - len(begun):
        named.append(f"{waiting} not begun")
    return ", ".join(named)


def stage_of(flight: RunState) -> str:
    """Where a run is, by the boundary that it would fail at: provider, agent, reward or host."""
    if not flight.rolled:
        if flight.retrying:
            return "provider: waits for a retry"
        return "provider: held by a limit" if flight.held else "agent: rolls out"
    name = flight.judging or flight.running
    if name is not None:
        return f"reward: {name}"
    return "reward: waits for its score" if flight.host or flight.scorer else "host: waits for a host to score it"
