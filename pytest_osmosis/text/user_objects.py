"""Objects of user code in words. They may lie about their class, raise in `__repr__`, or return gigabytes.

Every function here may run user code, and so must be called where such code may run. Only a `BaseException` that is no
`Exception` leaves it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any

from pytest_osmosis.text.safe import shortened

_NAME: Any = type.__dict__["__name__"]
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
MAX_ERROR_CHARS = 4_000


def type_name(value: object) -> str:
    """Return the name of an object's real class, whatever its metaclass says."""
    return str.__str__(_NAME.__get__(type(value)))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return an exception's traceback, whatever its own code does with that attribute."""
    trace: TracebackType | None = _TRACEBACK.__get__(error)
    return trace


def described(value: object, limit: int = 80) -> str:
    """Return the first `limit` characters of an object's `repr`, or why there is none."""
    try:
        text = repr(value)
    except Exception as error:
        return f"(its repr() raised {type_name(error)})"
    return str.__getitem__(text, slice(limit))


def text_of(error: BaseException) -> str:
    """Return the text of an exception, or why there is none."""
    try:
        text = str(error)
    except Exception as worse:
        text = f"(its text raised {type_name(worse)})"
    return shortened(str.__str__(text), MAX_ERROR_CHARS)


def error_in_words(error: BaseException) -> str:
    """Return an exception's class and text in words: "KeyError: 'x'"."""
    text = text_of(error)
    return f"{type_name(error)}: {text}" if text else type_name(error)
