"""`osmosis_ai.rollout.core.llm_client`: the client that a rollout's context asks."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from pytest_osmosis.compat.osmosis_ai.rollout.client import CompletionsResult
from pytest_osmosis.compat.osmosis_ai.rollout.core.schemas import RolloutMetrics


@runtime_checkable
class LLMClientProtocol(Protocol):
    """A client of a model."""

    async def chat_completions(self, messages: list[dict[str, Any]], **kwargs: Any) -> CompletionsResult: ...

    def get_metrics(self) -> RolloutMetrics: ...


__all__ = ["LLMClientProtocol"]
