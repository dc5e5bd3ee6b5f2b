"""The reason why no further run of an eval begins."""

from __future__ import annotations

from typing import Literal, NamedTuple

BoundName = Literal["max_errors", "max_tokens", "max_cost_usd", "max_duration_s"]
StopReason = Literal["systemic", "decided", BoundName, "maxfail", "interrupt", "journal", "closed"]


class Stop(NamedTuple):
    """The reason for code and for people."""

    reason: StopReason
    text: str
