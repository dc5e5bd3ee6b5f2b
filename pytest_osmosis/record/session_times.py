"""The times of the sessions of an eval run, from the moments in its journal."""

from __future__ import annotations

from datetime import datetime

from pytest_osmosis.record.run_record import Event

_WITH_MOMENTS = frozenset({"began", "start", "rollout", "ended"})
"""The kinds of events whose moments are checked when a journal is read. Those of other kinds may be anything."""


class SessionTimes:
    """The time of each session, from its begin to the last moment that it noted, without the time between sessions."""

    def __init__(self) -> None:
        self._spans: list[list[str]] = []

    def apply(self, event: Event) -> None:
        """Take the moment of an event, if it has one."""
        at = event.get("at")
        if at is None or event["ev"] not in _WITH_MOMENTS:
            return
        if event["ev"] == "began" or not self._spans:
            self._spans.append([at, at])
        else:
            self._spans[-1][1] = at

    @property
    def n_sessions(self) -> int:
        return len(self._spans)

    @property
    def each_ms(self) -> list[float]:
        """The time of each session."""
        spans = ((datetime.fromisoformat(begin), datetime.fromisoformat(end)) for begin, end in self._spans)
        return [max(0.0, 1000 * (end - begin).total_seconds()) for begin, end in spans]
