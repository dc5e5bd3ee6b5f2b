"""`osmosis_ai.rollout.core`: agent loops and their data."""

from __future__ import annotations

from pytest_osmosis.compat.homes import names_from

HOMES = {
    "AgentLoopNotFoundError": ".exceptions",
    "CompletionUsage": ".schemas",
    "CompletionsChoice": ".schemas",
    "CompletionsRequest": ".schemas",
    "CompletionsResponse": ".schemas",
    "DEFAULT_MAX_METADATA_SIZE_BYTES": ".schemas",
    "InitResponse": ".schemas",
    "LLMClientProtocol": ".llm_client",
    "MessageDict": ".schemas",
    "OpenAIFunctionCallSchema": ".schemas",
    "OpenAIFunctionParametersSchema": ".schemas",
    "OpenAIFunctionParsedSchema": ".schemas",
    "OpenAIFunctionPropertySchema": ".schemas",
    "OpenAIFunctionSchema": ".schemas",
    "OpenAIFunctionToolCall": ".schemas",
    "OpenAIFunctionToolSchema": ".schemas",
    "OsmosisRolloutError": ".exceptions",
    "OsmosisServerError": ".exceptions",
    "OsmosisTimeoutError": ".exceptions",
    "OsmosisTransportError": ".exceptions",
    "OsmosisValidationError": ".exceptions",
    "RolloutAgentLoop": ".base",
    "RolloutContext": ".base",
    "RolloutMetrics": ".schemas",
    "RolloutRequest": ".schemas",
    "RolloutResponse": ".schemas",
    "RolloutResult": ".base",
    "RolloutStatus": ".schemas",
    "SamplingParamsDict": ".schemas",
    "ToolArgumentError": ".exceptions",
    "ToolExecutionError": ".exceptions",
    "ToolResponse": ".schemas",
    "get_max_metadata_size_bytes": ".schemas",
    "set_max_metadata_size_bytes": ".schemas",
}
"""The modules below this one that define the names."""

__all__ = [*HOMES]

__getattr__ = names_from(__name__, HOMES)
