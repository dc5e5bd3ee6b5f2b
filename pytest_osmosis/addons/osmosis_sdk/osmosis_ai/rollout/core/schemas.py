"""`osmosis_ai.rollout.core.schemas`: the request of a rollout, its metrics, and its tools.

Field names and defaults are those of osmosis_ai 0.2.17. Unknown fields are dropped, as there.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

__all__ = [
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolSchema",
    "RolloutRequest",
]


class OpenAIFunctionPropertySchema(BaseModel):
    """A parameter of a tool."""

    type: str
    description: str | None = None
    enum: list[str] | None = None


class OpenAIFunctionParametersSchema(BaseModel):
    """The parameters of a tool; `type` is "object"."""

    type: str
    properties: dict[str, OpenAIFunctionPropertySchema]
    required: list[str]


def _no_parameters() -> OpenAIFunctionParametersSchema:
    return OpenAIFunctionParametersSchema(type="object", properties={}, required=[])


class OpenAIFunctionSchema(BaseModel):
    """The name, description and parameters of a tool."""

    name: str
    description: str
    parameters: OpenAIFunctionParametersSchema = Field(default_factory=_no_parameters)
    strict: bool = False


class OpenAIFunctionToolSchema(BaseModel):
    """A tool that a model may call; `type` is "function"."""

    type: str
    function: OpenAIFunctionSchema


class RolloutMetrics(BaseModel):
    """Times, calls and tokens of a rollout."""

    total_latency_ms: float = 0.0
    llm_latency_ms: float = 0.0
    tool_latency_ms: float = 0.0
    num_llm_calls: int = 0
    num_tool_calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    max_context_tokens: int = 0


class RolloutRequest(BaseModel):
    """A rollout as an agent sees it: its prompt, its parameters, and the row as metadata."""

    rollout_id: str
    server_url: str
    messages: list[dict[str, Any]]
    completion_params: dict[str, Any]
    tool_server_url: str | None = None
    max_turns: int = 10
    max_tokens_total: int = 8192
    metadata: dict[str, Any] = Field(default_factory=dict)
    api_key: str | None = None
    idempotency_key: str | None = None
