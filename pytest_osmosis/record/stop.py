"""The reason why no further run of an eval begins."""

from __future__ import annotations

from typing import NamedTuple

from pytest_osmosis.formats.words import Ending as Ending
from pytest_osmosis.formats.words import StopReason as StopReason

REQUESTED = "stopped with pytest-osmosis runs stop"
"""The text of a stop that the file `stop` in the run directory requests."""


class Stop(NamedTuple):
    """The reason for code and for people."""

    reason: StopReason
    text: str


_FAILURES = frozenset({"systemic", "journal", "max_errors", "killed"})


def ending_of(stop: Stop | None, *, all_done: bool) -> Ending:
    """Return the status of a session that has ended; `all_done` if it performed all runs that it was to perform.

    >>> ending_of(Stop("interrupt", "interrupted"), all_done=False)
    'stopped'
    """
    if stop is None or stop.reason == "decided" or (stop.reason == "closed" and all_done):
        return "finished"
    return "failed" if stop.reason in _FAILURES else "stopped"
