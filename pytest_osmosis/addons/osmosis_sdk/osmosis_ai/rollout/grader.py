"""`osmosis_ai.rollout.grader`: the base class of Graders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import GraderContext
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import GraderConfig

__all__ = ["Grader"]


class Grader(ABC):
    """Scores one rollout."""

    def __init__(self, config: GraderConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def grade(self, ctx: GraderContext) -> Any:
        """Call `ctx.set_reward`; the result is ignored."""
