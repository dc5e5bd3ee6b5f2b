"""The names of `osmosis_ai` itself, of all versions."""

from __future__ import annotations

from pytest_osmosis.compat.homes import names_from

HOMES = {
    "CompletionsResult": ".rollout.client",
    "InitResponse": ".rollout.core.schemas",
    "MissingAPIKeyError": ".rubric_types",
    "ModelNotFoundError": ".rubric_types",
    "OpenAIFunctionToolSchema": ".rollout.core.schemas",
    "OsmosisLLMClient": ".rollout.client",
    "OsmosisRolloutError": ".rollout.core.exceptions",
    "OsmosisServerError": ".rollout.core.exceptions",
    "OsmosisTimeoutError": ".rollout.core.exceptions",
    "OsmosisTransportError": ".rollout.core.exceptions",
    "OsmosisValidationError": ".rollout.core.exceptions",
    "ProviderRequestError": ".rubric_types",
    "RolloutAgentLoop": ".rollout.core.base",
    "RolloutContext": ".rollout.core.base",
    "RolloutMetrics": ".rollout.core.schemas",
    "RolloutRequest": ".rollout.core.schemas",
    "RolloutResponse": ".rollout.core.schemas",
    "RolloutResult": ".rollout.core.base",
    "create_app": ".rollout.server.app",
    "evaluate_rubric": ".rubric_eval",
    "get_agent_loop": ".rollout.registry",
    "list_agent_loops": ".rollout.registry",
    "register_agent_loop": ".rollout.registry",
    "osmosis_reward": ".utils",
    "osmosis_rubric": ".utils",
}
"""The modules below this one that define the names."""

__version__ = "0.2.17"
"""The last version of which these names are a copy, for code that asks."""

__all__ = [*HOMES, "__version__"]

__getattr__ = names_from(__name__, HOMES)
