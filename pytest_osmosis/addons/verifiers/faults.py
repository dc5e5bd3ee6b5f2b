"""`EnvironmentFault`: an environment ended a rollout with an error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pytest_osmosis.errors import OsmosisError

FaultBoundary = Literal["host", "model", "agent"]


class EnvironmentFault(OsmosisError):
    """An environment ended a rollout with an error. `facts` are those of the rollout, `details` is its traceback."""

    def __init__(
        self,
        message: str,
        boundary: FaultBoundary,
        facts: Mapping[str, Any],
        details: str = "",
    ) -> None:
        super().__init__(message)
        self.boundary: FaultBoundary = boundary
        self.facts = facts
        self.details = details
