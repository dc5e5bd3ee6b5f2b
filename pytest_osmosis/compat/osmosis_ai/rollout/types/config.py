"""`osmosis_ai.rollout.types.config`: the configs of workflows and Graders."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["AgentWorkflowConfig", "BaseConfig", "ConcurrencyConfig", "GraderConfig"]


class ConcurrencyConfig(BaseModel):
    """`max_concurrent` is how many may run at once, None for any number."""

    max_concurrent: int | None = Field(default=None, ge=1)


class BaseConfig(BaseModel):
    """A config with a name, and with further fields of any type."""

    model_config = ConfigDict(extra="allow", validate_assignment=True, arbitrary_types_allowed=True)

    name: str
    description: str | None = None


class AgentWorkflowConfig(BaseConfig):
    """The base class of a workflow's config."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)


class GraderConfig(BaseConfig):
    """The base class of a Grader's config."""

    concurrency: ConcurrencyConfig = Field(default_factory=ConcurrencyConfig)
