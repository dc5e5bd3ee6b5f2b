"""`osmosis_ai.rollout.integrations.agents.openai_agents`: agents of OpenAI's SDK (`pip install openai-agents`).

Their model asks the rollout's endpoint with the official client of OpenAI, where the SDK's goes through LiteLLM.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from agents import Agent
from agents.memory.session import SessionABC
from agents.models.chatcmpl_converter import Converter
from agents.models.interface import Model
from agents.models.openai_chatcompletions import OpenAIChatCompletionsModel
from openai import AsyncOpenAI

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import add_sample_source

if TYPE_CHECKING:
    from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.context import (
        RolloutContext,
        SampleSource,
        get_rollout_context,
    )
    from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.types import RolloutSample
else:  # the SDK's where it is installed without the extra of this module: its context is the one of the rollout
    from osmosis_ai.rollout.context import RolloutContext, SampleSource, get_rollout_context
    from osmosis_ai.rollout.types import RolloutSample

__all__ = ["OsmosisAgent", "OsmosisMemorySession", "OsmosisRolloutModel"]

NO_MODEL = "OsmosisRolloutModel only stands for the rollout's model: give it to OsmosisAgent, inside run()"
NO_SESSION = (
    "the model was asked without an OsmosisMemorySession: pass session=OsmosisMemorySession() to Runner.run(), so that "
    "there is a conversation to grade"
)


class OsmosisMemorySession(SessionABC):  # type: ignore[misc]  # agents is not installed where types are checked
    """A session in memory, which is the rollout's sample if it is constructed while a rollout runs."""

    def __init__(self, name: str | None = None) -> None:
        self.name = self.session_id = name or uuid.uuid4().hex
        self.items: list[Any] = []
        self._context = get_rollout_context()
        if self._context is not None:
            add_sample_source(self._context, SessionSampleSource(self), name)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        self._check_context()
        return self.items[:] if limit is None else self.items[-limit:]

    async def add_items(self, items: list[Any]) -> None:
        self._check_context()
        self.items.extend(items)

    async def pop_item(self) -> Any:
        return self.items.pop() if self.items else None

    async def clear_session(self) -> None:
        self.items.clear()

    def _check_context(self) -> None:
        context = get_rollout_context()
        if context is not None and context is not self._context:
            raise RuntimeError("OsmosisMemorySession belongs to another rollout, or to none: construct it inside run()")


class SessionSampleSource(SampleSource):
    """The items of a session, and for the archive the messages that they come to."""

    def __init__(self, session: SessionABC) -> None:
        self.session = session

    async def get_sample(self) -> RolloutSample:
        items = await self.session.get_items()
        return RolloutSample(messages=items, trajectory_messages=_as_messages(items))


def _as_messages(items: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]] | None:
    """Return the chat messages of a session's items, None if one has no such form."""
    try:
        converted = Converter.items_to_messages(list(items), preserve_tool_output_all_content=True)
    except Exception:
        return None
    return [dict(message) for message in converted]


class OsmosisRolloutModel(Model):  # type: ignore[misc]
    """Stands for the rollout's model in a config. Options of LiteLLM are kept, and have no effect here."""

    def __init__(self, **litellm_kwargs: Any) -> None:
        self.litellm_kwargs = litellm_kwargs

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(NO_MODEL)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError(NO_MODEL)
        yield


class OsmosisLitellmModel(OpenAIChatCompletionsModel):  # type: ignore[misc]
    """The model of the rollout that runs now."""

    def __init__(self, **litellm_kwargs: Any) -> None:
        context = get_rollout_context()
        if context is None:
            raise RuntimeError("OsmosisLitellmModel needs a rollout: construct it inside run()")
        client = AsyncOpenAI(base_url=context.chat_completions_url, api_key=context.api_key or "none", max_retries=0)
        super().__init__("osmosis-rollout", client)

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        _check_session(get_rollout_context())
        return await super().get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        _check_session(get_rollout_context())
        async for event in super().stream_response(*args, **kwargs):
            yield event


def _check_session(context: RolloutContext | None) -> None:
    if context is None or (context.sample_source is None and not getattr(context, "sample_sources", None)):
        raise RuntimeError(NO_SESSION)


class OsmosisAgent(Agent):  # type: ignore[misc]
    """An agent that asks the rollout's model if its model is an `OsmosisRolloutModel`."""

    def __init__(self, *args: Any, model: Any = None, **kwargs: Any) -> None:
        if isinstance(model, OsmosisRolloutModel):
            model = OsmosisLitellmModel(**model.litellm_kwargs)
        super().__init__(*args, model=model, **kwargs)
