"""OpenAI's chat completions as JSON: the body of a request, and the reply in the body of an answer.

Reading is lenient about what a reply may lack (usage, id, finish_reason) and about what it has beside
(unknown fields of the message are kept), and strict about what is needed: a first choice with a message.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """The body of a request, as ASCII JSON (a lone surrogate in a conversation has no UTF-8).

    Raises `TypeError` or `ValueError` when messages, tools or sampling hold what JSON cannot: the caller's
    mistake.
    """
    body: dict[str, Any] = {"model": target.model, "messages": list(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    if request.seed is not None:
        body["seed"] = request.seed
    sampling = dict(request.sampling)
    if "max_tokens" in sampling:
        body[target.max_tokens_key] = sampling.pop("max_tokens")
    return json.dumps({**body, **sampling}, allow_nan=False, separators=(",", ":")).encode("ascii")


def read_reply(status: int, content: bytes, failures: Failures) -> ChatReply:
    """The reply in the body of an answer with a good status.

    Raises `ModelError`: boundary "provider" and retryable when the body cannot be read, "model" when it holds
    no message.
    """
    body = _object(status, content, failures)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        what = "no choices" if "choices" not in body or choices == [] else f"choices = {_shape(choices)}"
        raise failures.no_answer(status, what, body)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise failures.no_answer(status, "a choice without a message", body)
    if not _is_list_of_objects(message.get("tool_calls")):
        raise failures.no_answer(status, "tool_calls that are no list of objects", body)
    return ChatReply(
        message={**message, "role": message.get("role") or "assistant"},
        finish_reason=_string(choice.get("finish_reason")),
        usage=_usage(body.get("usage")),
        model=_string(body.get("model")),
    )


def _object(status: int, content: bytes, failures: Failures) -> dict[str, Any]:
    text = content.decode("utf-8-sig", errors="replace")
    if not text.strip():
        raise failures.unreadable(status, text, "is empty")
    try:
        body = json.loads(text, parse_constant=_not_a_number, parse_float=_finite)
    except (ValueError, RecursionError):
        raise failures.unreadable(status, text, "is not JSON") from None
    if not isinstance(body, dict):
        raise failures.unreadable(status, text, "is not a JSON object")
    return body


def _not_a_number(_constant: str) -> None:
    """NaN and Infinity, which are no JSON, become null: what we write of a reply is strict."""


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


def _usage(data: object) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    input_tokens, output_tokens = _count(data.get("prompt_tokens")), _count(data.get("completion_tokens"))
    if input_tokens is None or output_tokens is None:
        return None
    return Usage(
        input_tokens,
        output_tokens,
        cached_input_tokens=_detail(data.get("prompt_tokens_details"), "cached_tokens"),
        reasoning_tokens=_detail(data.get("completion_tokens_details"), "reasoning_tokens"),
    )


def _detail(details: object, name: str) -> int | None:
    return _count(details.get(name)) if isinstance(details, Mapping) else None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _is_list_of_objects(value: object) -> bool:
    """Whether these are tool calls, or none at all."""
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))


def _shape(value: object) -> str:
    return "null" if value is None else f"a {type(value).__name__}"
