"""`osmosis_ai.rollout.core.schemas`: the request of a rollout, its metrics, and its tools.

Field names, defaults and checks are those of osmosis_ai 0.2.17. Unknown fields are dropped, as there.
"""

from __future__ import annotations

import json
from typing import Annotated, Any
from urllib.parse import urlparse

from pydantic import AfterValidator, BaseModel, Field, field_validator

__all__ = [
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolSchema",
    "RolloutRequest",
]

MOST_METADATA_BYTES = 1 << 20


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


def _not_blank(rollout_id: str) -> str:
    if not rollout_id.strip():
        raise ValueError("rollout_id cannot be empty or whitespace only")
    return rollout_id


class RolloutRequest(BaseModel):
    """A rollout as an agent sees it: its prompt, its parameters, and the row as metadata."""

    rollout_id: Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_not_blank)]
    server_url: str
    messages: list[dict[str, Any]]
    completion_params: dict[str, Any]
    tool_server_url: str | None = None
    max_turns: int = 10
    max_tokens_total: int = 8192
    metadata: dict[str, Any] = Field(default_factory=dict)
    api_key: str | None = None
    idempotency_key: str | None = None

    @field_validator("server_url")
    @classmethod
    def _is_http(cls, url: str) -> str:
        parts = urlparse(url)
        if parts.scheme not in ("http", "https"):
            raise ValueError("server_url must use http or https scheme")
        if not parts.netloc:
            raise ValueError("server_url must have a valid host")
        return url

    @field_validator("metadata")
    @classmethod
    def _is_small_json(cls, metadata: dict[str, Any]) -> dict[str, Any]:
        try:
            size = len(json.dumps(metadata).encode())
        except (TypeError, ValueError) as error:
            raise ValueError(f"metadata must be JSON serializable: {error}") from error
        if size > MOST_METADATA_BYTES:
            raise ValueError("metadata size exceeds maximum allowed size of 1MB")
        return metadata
