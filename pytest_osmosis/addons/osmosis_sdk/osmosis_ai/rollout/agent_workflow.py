"""`osmosis_ai.rollout.agent_workflow`: the base class of workflows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import AgentWorkflowContext
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import AgentWorkflowConfig, AgentWorkflowOutput

__all__ = ["AgentWorkflow"]

TConfig = TypeVar("TConfig", bound=AgentWorkflowConfig)


class AgentWorkflow(ABC, Generic[TConfig]):
    """Produces the conversation of one rollout."""

    def __init__(self, config: TConfig | None = None) -> None:
        self.config = config

    @abstractmethod
    async def run(self, ctx: AgentWorkflowContext[TConfig]) -> AgentWorkflowOutput | list[dict[str, Any]] | None:
        """Return the conversation, or None for that of the sample source."""
