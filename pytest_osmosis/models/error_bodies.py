"""Errors as servers write them into bodies: a message, and the status that it stands for.

Servers agree on no shape: {"error": {...} | "..."}, {"detail": ...}, {"message": ...}, {"object": "error", ...}, a list
around one of these, or plain text. Some send an error with status 200, with a code or a type in place of the status.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from pytest_osmosis.models.json_text import read

OUT_OF_QUOTA = ("insufficient_quota", "budget_exceeded")
EXHAUSTED = ("exceeded your current quota", "credit balance is too low")  # with various status codes
NO_KEY = ("api key not valid", "api_key_invalid", "no connected db")  # Google's and LiteLLM's 400 for a wrong key

PARAMETER_CODES = ("unsupported_parameter", "unsupported_value", "unknown_parameter")
"""OpenAI's codes of errors whose `param` is the refused key."""
REFUSED_KEY = re.compile(
    r"^(?:(?:unsupported|unknown) parameter: '([\w.]+)|unsupported value: '([\w.]+)\S* does not support"
    r"|unrecognized request argument supplied: (\w+)"
    r"|`?(\w+)`? (?:is deprecated for this model|and `?\w+`? cannot both be specified))",
    re.IGNORECASE,
)
"""The same in words: of OpenAI, of proxies that pass its message on, and of Anthropic."""
NOT_SAMPLED = frozenset(("messages", "model", "tools", "stream", "n", "input", "include", "store", "tool_choice"))
"""Keys that requests have whatever the config says."""

SEARCHED_CHARS = 10_000

STATUS_OF_NAME: Mapping[str, int] = {
    "invalid_request_error": 400,
    "invalid_argument": 400,
    "bad_request": 400,
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "content_policy_violation": 400,
    "invalid_prompt": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "unauthenticated": 401,
    "unauthorized": 401,
    "billing_error": 402,
    "insufficient_quota": 402,
    "permission_error": 403,
    "permission_denied": 403,
    "not_found_error": 404,
    "notfounderror": 404,
    "not_found": 404,
    "model_not_found": 404,
    "deploymentnotfound": 404,
    "timeout": 408,
    "timeout_error": 408,
    "aborted": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "too_many_requests": 429,
    "capacity_exceeded": 498,
    "cancelled": 499,
    "api_error": 500,
    "internal": 500,
    "internal_server_error": 500,
    "server_error": 500,
    "unavailable": 503,
    "unavailable_error": 503,
    "service_unavailable": 503,
    "deadline_exceeded": 504,
    "overloaded_error": 529,
}
"""The status for the names of errors, in lower case: of OpenAI, Anthropic, Google, Groq, vLLM and llama.cpp."""


class ErrorBody(NamedTuple):
    """An error. `status` is None if neither a code nor a name says which it is.

    `input_flagged` says that a moderator in front of the model refused this input (OpenRouter's 403).
    `refused_key` is a key of the request, like "temperature" or "reasoning.effort", that the model does not take.
    """

    message: str
    status: int | None = None
    quota_exhausted: bool = False
    key_refused: bool = False
    input_flagged: bool = False
    refused_key: str | None = None


def read_error(body: str) -> ErrorBody:
    """Return the error in the body of an answer that is known to be one."""
    try:
        data = read(body)
    except ValueError:
        data = body
    if isinstance(data, list) and data:  # one well-known server wraps its error object in a list
        data = data[0]
    return _error(data.get("error") or data.get("detail") or data if isinstance(data, dict) else data)


def error_in(*objects: Mapping[str, Any]) -> ErrorBody | None:
    """Return the first error in the objects of a body that should be a reply, or None."""
    for data in objects:
        if data.get("error"):
            return _error(data["error"])
        if data.get("object") == "error":
            return _error(data)
    return None


def _error(error: object) -> ErrorBody:
    message = text_of_error(error)
    names = [error.get(key) for key in ("code", "status", "type")] if isinstance(error, dict) else []
    low = message[:SEARCHED_CHARS].lower()
    return ErrorBody(
        message,
        next(filter(None, map(_status, names)), None),
        any(name in OUT_OF_QUOTA for name in names) or any(text in low for text in EXHAUSTED),
        "invalid_api_key" in names or any(text in low for text in NO_KEY),
        isinstance(error, dict) and isinstance(error.get("metadata"), dict) and "flagged_input" in error["metadata"],
        _refused_key(error, message),
    )


def _refused_key(error: object, message: str) -> str | None:
    key = error.get("param") if isinstance(error, dict) and error.get("code") in PARAMETER_CODES else None
    if not isinstance(key, str):
        found = REFUSED_KEY.match(message)
        key = found and found[found.lastindex or 0]
    return key if key and re.fullmatch(r"\w+(\.\w+)?", key) and key.partition(".")[0] not in NOT_SAMPLED else None


def _status(name: object) -> int | None:
    """Return the status for a code or a name of an error, None for any other value."""
    if isinstance(name, str):
        name = int(name) if len(name) == 3 and name.isdecimal() else STATUS_OF_NAME.get(name.lower())
    return name if isinstance(name, int) and 400 <= name < 600 else None


def text_of_error(error: object) -> str:
    if isinstance(error, str):
        return error
    message = error.get("message") if isinstance(error, dict) else None
    return message if isinstance(message, str) and message else _begin_of_json(error)


def _begin_of_json(value: object) -> str:
    """Return `value` as JSON, without what no message would show of a large one."""
    parts = json.JSONEncoder(ensure_ascii=False).iterencode(value)
    return "".join(part[:SEARCHED_CHARS] for part in itertools.islice(parts, SEARCHED_CHARS))
