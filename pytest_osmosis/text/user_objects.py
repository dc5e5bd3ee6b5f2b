"""Objects of user code in words. They may lie about their class, raise in `__repr__`, or return gigabytes.

Every function here may run user code, and so must be called where such code may run. Only a `BaseException` that is no
`Exception` leaves it.
"""

from __future__ import annotations

from typing import Any

from pytest_osmosis.text.safe import shortened

_NAME: Any = type.__dict__["__name__"]
MAX_ERROR_CHARS = 4_000


def type_name(value: object) -> str:
    """Return the name of an object's real class, whatever its metaclass says."""
    return str.__str__(_NAME.__get__(type(value)))


def described(value: object, limit: int = 80) -> str:
    """Return the first `limit` characters of an object's `repr`, or why there is none."""
    try:
        text = repr(value)
    except Exception as error:
        return f"(its repr() raised {type_name(error)})"
    return str.__getitem__(text, slice(limit))


def error_in_words(error: BaseException) -> str:
    """Return an exception's class and text in words: "KeyError: 'x'"."""
    try:
        text = str(error)
    except Exception as worse:
        text = f"(its text raised {type_name(worse)})"
    return f"{type_name(error)}: {shortened(str.__str__(text), MAX_ERROR_CHARS)}" if text else type_name(error)
