"""`osmosis_ai.rollout.core.schemas`: the data that agents, models and trainers exchange.

Field names, defaults and checks are those of osmosis_ai 0.2.17. Unknown fields are dropped, as there.
"""

from __future__ import annotations

import json
from enum import StrEnum
from typing import Annotated, Any, Literal
from urllib.parse import urlparse

from pydantic import AfterValidator, BaseModel, Field, field_validator, model_validator

MessageDict = dict[str, Any]
SamplingParamsDict = dict[str, Any]

DEFAULT_MAX_METADATA_SIZE_BYTES = 1 << 20

_metadata_limit = [DEFAULT_MAX_METADATA_SIZE_BYTES]


def get_max_metadata_size_bytes() -> int:
    return _metadata_limit[0]


def set_max_metadata_size_bytes(size_bytes: int) -> None:
    """Let the metadata of a request have this many bytes. Raises `ValueError` if that is not above 0."""
    if size_bytes <= 0:
        raise ValueError("max_metadata_size_bytes must be positive")
    _metadata_limit[0] = size_bytes


# -- tools ---------------------------------------------------------------------------------------------------


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


class OpenAIFunctionParsedSchema(BaseModel):
    """A call of a tool whose arguments are the model's text."""

    name: str
    arguments: str


class OpenAIFunctionCallSchema(BaseModel):
    """A call of a tool with its arguments by name."""

    name: str
    arguments: dict[str, Any]

    @staticmethod
    def from_openai_function_parsed_schema(
        parsed_schema: OpenAIFunctionParsedSchema,
    ) -> tuple[OpenAIFunctionCallSchema, bool]:
        """Return the call, and True if its text holds no arguments; then it has none."""
        try:
            arguments = json.loads(parsed_schema.arguments)
        except json.JSONDecodeError:
            arguments = None
        failed = not isinstance(arguments, dict)
        return OpenAIFunctionCallSchema(name=parsed_schema.name, arguments={} if failed else arguments), failed


class OpenAIFunctionToolCall(BaseModel):
    """A call of a tool with the id by which its result is matched."""

    id: str
    type: Literal["function"] = "function"
    function: OpenAIFunctionCallSchema


class ToolResponse(BaseModel):
    """The result of a tool: a text, images, videos."""

    text: str | None = None
    image: list[Any] | None = None
    video: list[Any] | None = None

    @model_validator(mode="before")
    @classmethod
    def _media_are_lists(cls, values: Any) -> Any:
        for name in ("image", "video"):
            value = values.get(name) if isinstance(values, dict) else None
            if value is not None and not isinstance(value, list):
                raise ValueError(f"{name} must be a list, but got {type(value)}; wrap a single one: [{name}]")
        return values

    def is_empty(self) -> bool:
        return not (self.text or self.image or self.video)

    def is_text_only(self) -> bool:
        return bool(self.text) and not (self.image or self.video)


# -- rollouts ------------------------------------------------------------------------------------------------


class RolloutStatus(StrEnum):
    """The end of a rollout."""

    COMPLETED = "COMPLETED"
    ERROR = "ERROR"


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


RolloutId = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_not_blank)]


class RolloutRequest(BaseModel):
    """A rollout as an agent sees it: its prompt, its parameters, and the row as metadata."""

    rollout_id: RolloutId
    server_url: str
    messages: list[MessageDict]
    completion_params: SamplingParamsDict
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
        limit = get_max_metadata_size_bytes()
        if metadata and size > limit:
            raise ValueError(
                f"metadata size exceeds maximum allowed size of {limit // DEFAULT_MAX_METADATA_SIZE_BYTES}MB"
            )
        return metadata


class InitResponse(BaseModel):
    """The answer to a request: the rollout's tools."""

    rollout_id: str
    tools: list[OpenAIFunctionToolSchema] = Field(default_factory=list)


class RolloutResponse(BaseModel):
    """A rollout that is over, as a trainer gets it."""

    rollout_id: str
    status: RolloutStatus
    final_messages: list[MessageDict] = Field(default_factory=list)
    finish_reason: str | None = None
    error_message: str | None = None
    reward: float | None = None
    metrics: RolloutMetrics | None = None
    extra_fields: dict[str, Any] = Field(default_factory=dict)


# -- answers of models -----------------------------------------------------------------------------------------


class CompletionsRequest(BaseModel):
    """A request to a model."""

    model: str = "default"
    messages: list[MessageDict]
    rollout_id: RolloutId
    temperature: float = 1.0
    top_p: float = 1.0
    max_tokens: int = 512
    stop: list[str] | None = None
    logprobs: bool = True


class CompletionsChoice(BaseModel):
    """An answer of a model."""

    index: int = 0
    message: MessageDict
    finish_reason: str = "stop"


class CompletionUsage(BaseModel):
    """The tokens of a request."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    total_tokens: int = 0


class CompletionsResponse(BaseModel):
    """The answers of a model to a request."""

    id: str
    object: str = "chat.completion"
    created: int
    model: str = "default"
    choices: list[CompletionsChoice]
    usage: CompletionUsage | None = None
    token_ids: list[int] | None = None
    logprobs: list[float] | None = None
    prompt_token_ids: list[int] | None = None


__all__ = [
    "DEFAULT_MAX_METADATA_SIZE_BYTES",
    "CompletionUsage",
    "CompletionsChoice",
    "CompletionsRequest",
    "CompletionsResponse",
    "InitResponse",
    "MessageDict",
    "OpenAIFunctionCallSchema",
    "OpenAIFunctionParametersSchema",
    "OpenAIFunctionParsedSchema",
    "OpenAIFunctionPropertySchema",
    "OpenAIFunctionSchema",
    "OpenAIFunctionToolCall",
    "OpenAIFunctionToolSchema",
    "RolloutMetrics",
    "RolloutRequest",
    "RolloutResponse",
    "RolloutStatus",
    "SamplingParamsDict",
    "ToolResponse",
    "get_max_metadata_size_bytes",
    "set_max_metadata_size_bytes",
]
