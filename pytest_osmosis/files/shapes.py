"""The shape that JSON must have: a check for each kind of value, put together from checks of its parts.

A check raises `ShapeFault` with the place of the first part that does not fit. Members that no check names may hold
anything: a later version may have added them.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from pytest_osmosis.text.safe import one_line

Check = Callable[[Any], None]
LARGEST = 10.0**15
"""The largest count, time or price that is believed: none of ours comes near it."""
QUOTED_CHARS = 100


class ShapeFault(ValueError):
    """A value that does not fit; the text begins with its place, like "errors.f.message: must be text, got 3"."""

    def __init__(self, text: str, place: str = "") -> None:
        super().__init__(f"{place.removeprefix('.')}: {text}" if place else text)
        self._text = text
        self._place = place

    def within(self, step: str | int) -> ShapeFault:
        """Return this fault with the place of the value that holds the other."""
        key = f"[{step}]" if isinstance(step, int) else f".{one_line(step, QUOTED_CHARS)}"
        return ShapeFault(self._text, key + self._place)


def anything(value: Any) -> None:
    """Accept any value."""


def text(value: Any) -> None:
    if not isinstance(value, str):
        raise _fault("text", value)


def flag(value: Any) -> None:
    if not isinstance(value, bool):
        raise _fault("true or false", value)


def moment(value: Any) -> None:
    """Require a time with its zone, in ISO 8601."""
    try:
        fits = datetime.fromisoformat(value).tzinfo is not None
    except (TypeError, ValueError):
        fits = False
    if not fits:
        raise _fault("a time in ISO 8601 with its zone", value)


def number(least: float = -sys.float_info.max, largest: float = sys.float_info.max) -> Check:
    expected = "a number" if least < -LARGEST else f"a number of at least {least:g}"

    def check(value: Any) -> None:
        if (type(value) is not float and type(value) is not int) or not least <= value <= largest:  # and no bool
            raise _fault(expected, value)

    return check


def whole(least: int = 0) -> Check:
    def check(value: Any) -> None:
        if type(value) is not int or not least <= value <= LARGEST:  # and no bool
            raise _fault(f"an integer of at least {least}", value)

    return check


def one_of(*values: object) -> Check:
    def check(value: Any) -> None:
        fits = any(value == each and type(value) is type(each) for each in values)
        if not fits:
            raise _fault(f"one of {', '.join(map(str, values))}", value)

    return check


def nullable(inner: Check) -> Check:
    def check(value: Any) -> None:
        if value is not None:
            inner(value)

    return check


def listing(inner: Check, *, length: int | None = None) -> Check:
    def check(value: Any) -> None:
        fits = isinstance(value, list) and (length is None or len(value) == length)
        if not fits:
            raise _fault("a list" if length is None else f"a list of {length}", value)
        if inner is anything:
            return
        index = 0
        try:
            for index, item in enumerate(value):  # noqa: B007 (the handler needs it)
                inner(item)
        except ShapeFault as fault:
            raise fault.within(index) from None

    return check


def table(inner: Check, keys: Check = anything) -> Check:
    """Require an object with any keys that pass, and values that pass."""

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise _fault("an object", value)
        for key in value if keys is not anything else ():
            keys(key)
        key = ""
        try:
            for key, item in value.items():  # noqa: B007 (the handler needs it)
                inner(item)
        except ShapeFault as fault:
            raise fault.within(key) from None

    return check


def members(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    """Require an object with these members."""

    # Journals have millions of members, so each costs one call here, and what accepts anything costs none.
    checks = {name: inner for name, inner in {**required, **(optional or {})}.items() if inner is not anything}

    def check(value: Any) -> None:
        if not isinstance(value, dict):
            raise _fault("an object", value)
        name = ""
        try:
            for name, item in value.items():
                if name in checks:
                    checks[name](item)
        except ShapeFault as fault:
            raise fault.within(name) from None
        for name in required:
            if name not in value:
                raise ShapeFault(f"lacks {name}")

    return check


def check_version(data: Mapping[str, Any], known: int) -> None:
    """Raise `ShapeFault` if an object is of another version of its format."""
    version = data.get("schema_version", known)
    if version != known or isinstance(version, bool):
        raise ShapeFault(f"has schema_version {quoted(version)}, and this version of pytest-osmosis reads {known}")


def _fault(expected: str, value: Any) -> ShapeFault:
    return ShapeFault(f"must be {expected}, got {quoted(value)}")


def quoted(value: Any) -> str:
    """Return a value of JSON, shortened.

    >>> quoted(True), quoted([1, 2]), quoted("x")
    ('True', '[1, 2]', "'x'")
    """
    return one_line(repr(value) if isinstance(value, str) else reprlib.repr(value), QUOTED_CHARS)
