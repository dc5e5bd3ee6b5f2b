"""The reason why no further run of an eval begins."""

from __future__ import annotations

from typing import Literal, NamedTuple

BoundName = Literal["max_errors", "max_tokens", "max_cost_usd", "max_duration_s"]
StopReason = Literal["systemic", "decided", BoundName, "maxfail", "interrupt", "requested", "journal", "closed"]


REQUESTED = "stopped with pytest-osmosis runs stop"
"""The text of a stop that the file `stop` in the run directory requests."""


class Stop(NamedTuple):
    """The reason for code and for people."""

    reason: StopReason
    text: str
