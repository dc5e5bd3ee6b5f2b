"""`osmosis_ai.rollout.types.output`: the results of workflows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AgentWorkflowOutput", "Messages"]

Messages = list[dict[str, Any]]


class AgentWorkflowOutput(BaseModel):
    """A conversation, with finite numbers and further facts by name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, revalidate_instances="always")

    messages: Messages | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)
