"""`osmosis_ai.rollout.types`: configs, samples and outputs."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "AgentWorkflowConfig",
    "AgentWorkflowOutput",
    "BaseConfig",
    "ConcurrencyConfig",
    "ExecutionOutcome",
    "GraderConfig",
    "GraderStatus",
    "RolloutErrorCategory",
    "RolloutSample",
    "RolloutStatus",
]


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


class AgentWorkflowOutput(BaseModel):
    """A conversation, with finite numbers and further facts by name."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, revalidate_instances="always")

    messages: list[dict[str, Any]] | None = None
    metrics: dict[str, float] = Field(default_factory=dict)
    info: dict[str, Any] = Field(default_factory=dict)


class RolloutSample(BaseModel):
    """A conversation and what a Grader makes of it. `id` is its name, which samples had before 0.3."""

    model_config = ConfigDict(allow_inf_nan=False, validate_assignment=True)

    id: str | None = None
    messages: Sequence[Mapping[str, Any]] = Field(default_factory=list)
    trajectory_messages: Sequence[Mapping[str, Any]] | None = None
    label: str | None = None
    reward: float | None = None
    remove_sample: bool = False
    metrics: dict[str, Any] = Field(default_factory=dict)
    extra_fields: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _copy_messages(self) -> RolloutSample:
        """Archive a copy of the messages, if that is possible, unless others or None were given."""
        if "trajectory_messages" not in self.model_fields_set:
            try:
                self.trajectory_messages = copy.deepcopy(list(self.messages))
            except Exception:
                self.trajectory_messages = None
        return self


class RolloutStatus(StrEnum):
    """The state of a rollout, or how it ended."""

    QUEUED = "queued"
    RUNNING = "running"
    GRADING = "grading"
    SUCCESS = "success"
    FAILURE = "failure"
    CANCELLED = "cancelled"
    UNKNOWN = "unknown"


class GraderStatus(StrEnum):
    """The state of grading, before 0.3."""

    PENDING = "pending"
    SUCCESS = "success"
    FAILURE = "failure"


class RolloutErrorCategory(StrEnum):
    """The kind of an error."""

    TIMEOUT = "timeout"
    LEASE_EXPIRED = "lease_expired"
    VALIDATION_ERROR = "validation_error"
    HTTP_ERROR = "http_error"
    AGENT_ERROR = "agent_error"
    INTERNAL_ERROR = "internal_error"


class ExecutionOutcome(BaseModel):
    """The results of a row's workflow and of its Grader, as a backend returns them."""

    workflow: Any
    grader: Any = None
