"""All that is stored and published, declared once: readers, writers and checks are made from these declarations.

Its words, in closed sets, are here: they import no msgspec.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal


class ModelTag(StrEnum):
    """The two models of an eval: its own, and the one of its `[baseline]`."""

    PRIMARY = "primary"
    BASELINE = "baseline"


Boundary = Literal["provider", "host", "model", "agent", "timeout", "reward"]
Granularity = Literal["run", "row"]
Ending = Literal["finished", "stopped", "failed"]
CassetteMode = Literal["record", "new", "replay"]
BoundName = Literal["max_errors", "max_tokens", "max_cost_usd", "max_duration_s"]
StopReason = Literal[
    "systemic", "decided", BoundName, "maxfail", "interrupt", "requested", "journal", "closed", "killed"
]
"""`killed` is found later: the process of the eval run ended without a stop."""
