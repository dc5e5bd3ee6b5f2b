"""`osmosis_ai.rollout.types`: configs, samples, outputs, and the requests and results of backends."""

from __future__ import annotations

from pytest_osmosis.compat.osmosis_ai.rollout.types.config import (
    AgentWorkflowConfig,
    BaseConfig,
    ConcurrencyConfig,
    GraderConfig,
)
from pytest_osmosis.compat.osmosis_ai.rollout.types.output import AgentWorkflowOutput, Messages
from pytest_osmosis.compat.osmosis_ai.rollout.types.sample import (
    ExecutionOutcome,
    ExecutionRequest,
    ExecutionResult,
    GraderStatus,
    MessageDict,
    RolloutErrorCategory,
    RolloutSample,
    RolloutStatus,
)

__all__ = [
    "AgentWorkflowConfig",
    "AgentWorkflowOutput",
    "BaseConfig",
    "ConcurrencyConfig",
    "ExecutionOutcome",
    "ExecutionRequest",
    "ExecutionResult",
    "GraderConfig",
    "GraderStatus",
    "MessageDict",
    "Messages",
    "RolloutErrorCategory",
    "RolloutSample",
    "RolloutStatus",
]
