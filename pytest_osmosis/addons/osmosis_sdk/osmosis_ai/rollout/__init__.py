"""`osmosis_ai.rollout`: agents, their contexts and their helpers, of 0.2; workflows and Graders, of 0.3.

Both have a `RolloutContext`. Here it is that of 0.2, which agents name in signatures; that of 0.3 is in `.context`.
"""

from __future__ import annotations

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.agent_workflow import AgentWorkflow
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.backend.local import LocalBackend
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.client import CompletionsResult
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import (
    AgentWorkflowContext,
    GraderContext,
    SampleSource,
    get_rollout_context,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.base import (
    RolloutAgentLoop,
    RolloutContext,
    RolloutResult,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.exceptions import ToolArgumentError
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionParametersSchema,
    OpenAIFunctionPropertySchema,
    OpenAIFunctionSchema,
    OpenAIFunctionToolSchema,
    RolloutRequest,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.grader import Grader
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.server import create_app
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.tools import (
    create_tool_error_result,
    create_tool_result,
    execute_tool_calls,
    get_tool_call_info,
    serialize_tool_result,
)
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import (
    AgentWorkflowConfig,
    AgentWorkflowOutput,
    BaseConfig,
    ConcurrencyConfig,
    GraderConfig,
    GraderStatus,
    RolloutErrorCategory,
    RolloutSample,
    RolloutStatus,
)

__all__ = [
    "AgentWorkflow",
    "AgentWorkflowConfig",
    "AgentWorkflowContext",
    "AgentWorkflowOutput",
    "BaseConfig",
    "CompletionsResult",
    "ConcurrencyConfig",
    "Grader",
    "GraderConfig",
    "GraderContext",
    "GraderStatus",
    "LocalBackend",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolSchema",
    "RolloutAgentLoop",
    "RolloutContext",
    "RolloutErrorCategory",
    "RolloutRequest",
    "RolloutResult",
    "RolloutSample",
    "RolloutStatus",
    "SampleSource",
    "ToolArgumentError",
    "create_app",
    "create_tool_error_result",
    "create_tool_result",
    "execute_tool_calls",
    "get_rollout_context",
    "get_tool_call_info",
    "serialize_tool_result",
]
