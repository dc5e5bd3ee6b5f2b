"""`osmosis_ai.rollout.types.sample`: samples, and the requests and results of backends."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

__all__ = [
    "ExecutionOutcome",
    "ExecutionRequest",
    "ExecutionResult",
    "GraderStatus",
    "MessageDict",
    "RolloutErrorCategory",
    "RolloutSample",
    "RolloutStatus",
]

MessageDict = dict[str, Any]


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
        """Archive a copy of the messages, if they can be copied, unless others were given, or None."""
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


class ExecutionRequest(BaseModel):
    """A row, as a backend gets it."""

    id: str
    prompt: list[MessageDict]
    label: str | None = None
    metadata: dict[str, Any] | None = None
    agent_timeout_sec: float | None = None
    grader_timeout_sec: float | None = None
    grade: bool = True

    @field_validator("agent_timeout_sec", "grader_timeout_sec")
    @classmethod
    def _must_be_finite(cls, value: float | None) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError("timeout must be finite; omit it to run unbounded")
        return value


class ExecutionResult(BaseModel):
    """The result of a workflow or of a Grader."""

    status: RolloutStatus
    sample: RolloutSample | None = None
    err_message: str | None = None
    err_category: RolloutErrorCategory | None = None
    extra_fields: dict[str, Any] | None = None


class ExecutionOutcome(BaseModel):
    """Both results of a row."""

    workflow: ExecutionResult
    grader: ExecutionResult | None = None
