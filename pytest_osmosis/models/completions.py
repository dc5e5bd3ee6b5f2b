"""OpenAI's chat completions as JSON: writes the body of a request, reads the reply from the body of an answer.

A reply may lack usage, id and finish_reason, and unknown fields of its message are kept. It must have a first choice
with a message.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.error_bodies import error_in
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import count, count_in, encoded, json_object, shape, string
from pytest_osmosis.models.targets import ModelTarget


def write_request(request: ChatRequest, target: ModelTarget) -> bytes:
    """Return the body of a request.

    Raises `TypeError` or `ValueError` for messages, tools or sampling that are not JSON.
    """
    body: dict[str, Any] = {"model": target.model, "messages": list(request.messages)}
    if request.tools:
        body["tools"] = list(request.tools)
    if request.seed is not None and target.seed_key is not None:
        body[target.seed_key] = request.seed
    sampling = dict(request.sampling)
    if "max_tokens" in sampling:
        body[target.max_tokens_key] = sampling.pop("max_tokens")
    return encoded({**body, **sampling})


def read_reply(status: int, text: str, failures: Failures) -> ChatReply:
    """Return the reply in the body of a 2xx answer.

    Raises `ModelError`: boundary "provider" and retryable if the body cannot be read, "model" if it has no message, and
    that of the error if the body reports one.
    """
    body = json_object(status, text, failures)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        fault = "no choices" if "choices" not in body or choices == [] else f"choices = {shape(choices)}"
        raise failures.no_answer(status, fault, body)
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    if not isinstance(message, dict):
        raise failures.no_answer(status, "a choice without a message", choice, body)
    if not _is_list_of_objects(message.get("tool_calls")):
        raise failures.no_answer(status, "tool_calls that are not a list of objects", body)
    if error_in(choice) is not None or (error_in(body) is not None and not _says_something(message)):
        raise failures.no_answer(status, "an answer that the server broke off", choice, body)
    if choice.get("finish_reason") == "error":
        raise failures.broken_off(status)
    return ChatReply(
        message={**message, "role": message.get("role") or "assistant"},
        finish_reason=string(choice.get("finish_reason")),
        usage=_usage(body.get("usage")),
        model=string(body.get("model")),
    )


def _usage(data: object) -> Usage | None:
    """Return the tokens. DeepSeek and LiteLLM have names of their own for those read from and written to a cache.

    Some servers leave reasoning tokens out of `completion_tokens`, but not out of `total_tokens`: xAI's and Google's.
    """
    if not isinstance(data, Mapping):
        return None
    input_tokens, output_tokens = count(data.get("prompt_tokens")), count(data.get("completion_tokens"))
    if input_tokens is None or output_tokens is None:
        return None
    output_tokens = max(output_tokens, (count(data.get("total_tokens")) or 0) - input_tokens)
    details = data.get("prompt_tokens_details")
    cached, written = count_in(details, "cached_tokens"), count_in(details, "cache_write_tokens")
    return Usage(
        input_tokens,
        output_tokens,
        cached_input_tokens=count(data.get("prompt_cache_hit_tokens")) if cached is None else cached,
        reasoning_tokens=count_in(data.get("completion_tokens_details"), "reasoning_tokens"),
        cache_write_tokens=count(data.get("cache_creation_input_tokens")) if written is None else written,
    )


def _says_something(message: Mapping[str, Any]) -> bool:
    return any(message.get(name) for name in ("content", "tool_calls", "refusal"))


def _is_list_of_objects(value: object) -> bool:
    return value is None or (isinstance(value, list) and all(isinstance(item, dict) for item in value))
