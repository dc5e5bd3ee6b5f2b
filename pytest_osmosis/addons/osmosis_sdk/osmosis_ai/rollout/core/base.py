"""`osmosis_ai.rollout.core.base`: agent loops, their context and their result (osmosis_ai 0.2.17)."""

from __future__ import annotations

import json
import logging
import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.client import CompletionsResult
from pytest_osmosis.addons.osmosis_sdk.osmosis_ai.rollout.core.schemas import (
    OpenAIFunctionToolSchema,
    RolloutMetrics,
    RolloutRequest,
)

__all__ = ["RolloutAgentLoop", "RolloutContext", "RolloutResult"]

logger = logging.getLogger(__name__)


@dataclass
class RolloutResult:
    """The end of a rollout: its `status` is "COMPLETED" or "ERROR"."""

    status: str
    final_messages: list[dict[str, Any]]
    finish_reason: str
    error_message: str | None = None
    metrics: RolloutMetrics | None = None
    reward: float | None = None


@dataclass
class RolloutContext:
    """A rollout as `run` of an agent loop sees it. `llm` asks the model with the rollout's tools."""

    request: RolloutRequest
    tools: list[OpenAIFunctionToolSchema]
    llm: Any
    _start_time: float = field(default=0.0, repr=False)
    _tool_latency_ms: float = field(default=0.0, repr=False)
    _num_tool_calls: int = field(default=0, repr=False)
    _debug_dir: str | None = field(default=None, repr=False)

    async def chat(self, messages: list[dict[str, Any]], **kwargs: Any) -> CompletionsResult:
        """Ask the model; further arguments are parameters of the request."""
        answer: CompletionsResult = await self.llm.chat_completions(messages, **kwargs)
        return answer

    def complete(
        self, final_messages: list[dict[str, Any]], finish_reason: str = "stop", reward: float | None = None
    ) -> RolloutResult:
        """Return the result of a rollout that succeeded. An eval ignores its `reward`."""
        return RolloutResult("COMPLETED", final_messages, finish_reason, metrics=self._metrics(), reward=reward)

    def error(self, error_message: str, final_messages: list[dict[str, Any]] | None = None) -> RolloutResult:
        """Return the result of a rollout that failed."""
        return RolloutResult("ERROR", final_messages or [], "error", error_message, self._metrics())

    def record_tool_call(self, latency_ms: float = 0.0) -> None:
        """Count a call of a tool in the metrics."""
        self._num_tool_calls += 1
        self._tool_latency_ms += latency_ms

    @property
    def debug_enabled(self) -> bool:
        return self._debug_dir is not None

    def log_event(self, event_type: str, **data: Any) -> None:
        """Append an event to the rollout's file in the debug folder, if there is one."""
        if not self._debug_dir:
            return
        line = json.dumps({"event": event_type, "rollout_id": self.request.rollout_id, **data}, default=str)
        path = Path(self._debug_dir) / f"{self.request.rollout_id}.jsonl"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            logger.warning("Failed to write debug event to %s: %s", path, error)

    def _metrics(self) -> RolloutMetrics:
        begun = self._start_time
        counted = {
            "total_latency_ms": (time.monotonic() - begun) * 1000 if begun > 0 else 0.0,
            "tool_latency_ms": self._tool_latency_ms,
            "num_tool_calls": self._num_tool_calls,
        }
        metrics: RolloutMetrics = self.llm.get_metrics()
        return metrics.model_copy(update=counted)


class RolloutAgentLoop(ABC):
    """The base class of agent loops: they have a `name`, and define `get_tools` and `run`."""

    name: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not getattr(cls, "name", None):
            raise TypeError(f"Agent loop class {cls.__name__} must define a 'name' class attribute")

    @abstractmethod
    def get_tools(self, request: RolloutRequest) -> list[OpenAIFunctionToolSchema]:
        """Return the tools of a rollout, [] for none."""

    @abstractmethod
    async def run(self, ctx: RolloutContext) -> RolloutResult:
        """Return the result of a rollout: `ctx.complete(...)` or `ctx.error(...)`."""

    def get_default_tools(self) -> list[OpenAIFunctionToolSchema]:
        """Return the tools for a request without messages."""
        return self.get_tools(
            RolloutRequest(rollout_id="discovery", server_url="http://localhost", messages=[], completion_params={})
        )
