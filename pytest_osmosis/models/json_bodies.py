"""JSON bodies of requests and answers, whatever their shape: written strictly, read leniently."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.lenient_json import MAX_DEPTH, TooDeep, read
from pytest_osmosis.models.targets import MESSAGE_SHARE, ModelTarget

MAX_COUNT = 10**9
"""More tokens than any request can have. What a larger number would cost is not worth computing."""
MAX_LABEL = 200
ESCAPED = 6
"""The length of a character as an escape."""


def encoded(body: Mapping[str, Any] | Sequence[Any]) -> bytes:
    """Return a body as ASCII JSON, because UTF-8 has no lone surrogates. Raises `TypeError` or `ValueError`."""
    return _written(body).encode("ascii")


_written = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def decoded(status: int, content: bytes, failures: Failures) -> str:
    """Return the text of a body. Raises a retryable `ModelError` if it is not UTF-8, the one encoding of JSON."""
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 (byte 0x{content[error.start]:02x} at position {error.start:,})"
        raise failures.unreadable(status, shown(content), fault) from None


def shown(content: bytes) -> str:
    r"""Return a body for a message. Bytes that are not UTF-8 become escapes.

    >>> print(shown(b"caf\xe9"))
    caf\xe9
    """
    return content.decode("utf-8-sig", errors="backslashreplace")


def json_object(status: int, text: str, failures: Failures) -> dict[str, Any]:
    """Return the object in the body of an answer. Raises a retryable `ModelError` if the body is not an object."""
    if not text.strip():
        raise failures.unreadable(status, text, "is empty")
    try:
        body = read(text)
    except TooDeep:
        raise failures.unreadable(status, text, f"is nested more than {MAX_DEPTH} levels deep") from None
    except ValueError:
        raise failures.unreadable(status, text, "is not JSON") from None
    if not isinstance(body, dict):
        raise failures.unreadable(status, text, "is not a JSON object")
    return body


def answer_list(body: Mapping[str, Any], key: str, status: int, failures: Failures) -> list[Any]:
    """Return the list that the body of an answer has under a key. Raises `ModelError` if it has none."""
    value = body.get(key)
    if value is None:
        raise failures.no_answer(status, f"{key} = null" if key in body else f"no {key}", body)
    if not isinstance(value, list):
        raise failures.misshapen(status, f"{key} = {shape(value)}", body)
    return value


def first_choice(choices: Sequence[Any]) -> Any:
    """Return the choice with index 0, in whatever order a server lists them; the first if none has that index."""
    return next((each for each in choices if isinstance(each, dict) and each.get("index") == 0), choices[0])


def function_of(call: Any) -> Mapping[str, Any]:
    """Return the function that a tool call of a chat message names. Raises `ValueError` for what is no call."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        raise ValueError(f"a tool call must be an object with a function, got {call!r}")
    return function


OF_OTHERS = frozenset({"user", "human", "system", "developer", "tool", "function"})
"""The roles of messages that no model wrote. Servers have many names for its own: "model", "ai", "Assistant"."""


def role_fault(role: object) -> str | None:
    """Return why a message is no answer of a model, in words, or None. It may lack a role."""
    if not isinstance(role, str | None):
        return f"role = {shape(role)}"
    name = (role or "").strip().lower()
    return f'a message of role "{name}" in place of an answer' if name in OF_OTHERS else None


def check_size(status: int, message: Any, target: ModelTarget, failures: Failures) -> None:
    """Raise `ModelError` for a message that is too large to be kept, sent back and written. It is counted unwritten."""
    limit = target.max_message_bytes
    size, rest = 0, [message]
    while rest and size <= limit:
        value = rest.pop()
        if isinstance(value, str):
            size += len(value) * (1 if value.isascii() and value.isprintable() else ESCAPED)
        elif isinstance(value, (dict, list)):
            rest += (*value, *value.values()) if isinstance(value, dict) else value
        size += 1
    if size > limit:
        raise failures.too_large(
            status, f"a message of more than {limit / 2**20:g} MB (a {MESSAGE_SHARE}th of the bound on a body)"
        )


def count_in(value: object, *path: str) -> int | None:
    """Return the number of tokens at a path of names, None for a value that cannot be one."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT else None


def given(body: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the keys of a body that have a value, or those of `names`: null stands for the default in every API."""
    return {name: body[name] for name in names or body if body.get(name) is not None}


def without(body: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    return {name: value for name, value in body.items() if name not in names}


def string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def label(value: object) -> str | None:
    """Return the name of a model or of a reason, None for a value that cannot be one."""
    return value if isinstance(value, str) and len(value) <= MAX_LABEL else None


def shape(value: object) -> str:
    """Return the type of a value in words: "null" or "a list"."""
    return SHAPES.get(type(value), "a number")


SHAPES = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", dict: "an object"}
