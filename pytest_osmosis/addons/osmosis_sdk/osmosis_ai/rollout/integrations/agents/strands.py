"""`osmosis_ai.rollout.integrations.agents.strands`: agents of Strands (`pip install strands-agents[openai]`).

Their model asks the rollout's endpoint with the official client of OpenAI, where the SDK's goes through LiteLLM.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strands import Agent
from strands.models.model import Model
from strands.models.openai import OpenAIModel

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import add_sample_source

if TYPE_CHECKING:
    from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import SampleSource, get_rollout_context
    from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import RolloutSample
else:  # the SDK's where it is installed without the extra of this module: its context is the one of the rollout
    from osmosis_ai.rollout.context import SampleSource, get_rollout_context
    from osmosis_ai.rollout.types import RolloutSample

__all__ = ["OsmosisRolloutModel", "OsmosisStrandsAgent"]

NO_MODEL = "OsmosisRolloutModel only stands for the rollout's model: give it to OsmosisStrandsAgent, inside run()"


class StrandsAgentSampleSource(SampleSource):
    """The messages of an agent, and for the archive those that its model gets."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent

    async def get_sample(self) -> RolloutSample:
        messages = list(self.agent.messages)
        return RolloutSample(messages=messages, trajectory_messages=_as_messages(messages))


def _as_messages(messages: Sequence[Any]) -> list[dict[str, Any]] | None:
    """Return the chat messages that the model gets, None if one has no such form."""
    try:
        return [dict(message) for message in OpenAIModel.format_request_messages(list(messages))]
    except Exception:
        return None


class OsmosisRolloutModel(Model):  # type: ignore[misc]  # strands is not installed where types are checked
    """Stands for the rollout's model in a config. Of its options, `params` have an effect here."""

    def __init__(self, **litellm_kwargs: Any) -> None:
        self.litellm_kwargs = litellm_kwargs

    def update_config(self, **model_config: Any) -> None:
        raise NotImplementedError(NO_MODEL)

    def get_config(self) -> Any:
        raise NotImplementedError(NO_MODEL)

    def structured_output(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(NO_MODEL)

    def stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(NO_MODEL)


class OsmosisStrandsAgent(Agent):  # type: ignore[misc]
    """An agent that asks the rollout's model, and is its sample, if its model is an `OsmosisRolloutModel`."""

    def __init__(self, *args: Any, messages: list[dict[str, Any]] | None = None, model: Any = None, **kwargs: Any):
        if isinstance(model, OsmosisRolloutModel):
            context = get_rollout_context()
            if context is None:
                raise RuntimeError(NO_MODEL)
            add_sample_source(context, StrandsAgentSampleSource(self), kwargs.get("name") or kwargs.get("agent_id"))
            model = OpenAIModel(
                client_args={"base_url": context.chat_completions_url, "api_key": context.api_key or "none"},
                model_id="osmosis-rollout",
                params=model.litellm_kwargs.get("params") or {},
            )
        blocks = [_with_blocks(message) for message in messages] if messages else messages
        super().__init__(*args, model=model, messages=blocks, **kwargs)


def _with_blocks(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message with a list of blocks in place of a text."""
    content = message.get("content")
    return {**message, "content": [{"text": content}]} if isinstance(content, str) else message
