"""Objects of user code in words, and its numbers, metrics and further fields as plain data.

Objects may lie about their class, raise in `__repr__`, or return gigabytes. Every function here may run user code.
`UserValueFault`, which says what to do, is raised for what cannot be taken.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from itertools import islice
from types import TracebackType
from typing import Any

from pytest_osmosis.text.safe import dumps, shortened

_NAME: Any = type.__dict__["__name__"]
_TRACEBACK: Any = BaseException.__dict__["__traceback__"]
MAX_ERROR_CHARS = 4_000
MOST_METRICS = 100
MOST_NAME_CHARS = 100
MOST_FIELDS = 50
MOST_FIELD_CHARS = 2_000
DEEPEST_FIELD = 20


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


class UserValueFault(TypeError, ValueError):
    """A value of user code is not what it has to be."""


def number_of(value: object, must: str = "must return a") -> float:
    """Return a number as a finite float: int, bool, float and numpy scalars are numbers. `must` begins the fault."""
    if not isinstance(value, numbers.Real) and getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()
    not_a_number = f"{must} number, got {type_name(value)}: "
    if not isinstance(value, numbers.Real):
        raise UserValueFault(not_a_number + described(value))
    try:
        number = float(value)
    except TypeError:  # it claims to be a number
        raise UserValueFault(not_a_number + described(value)) from None
    except OverflowError:
        raise UserValueFault(f"{must} finite number, got one beyond the largest float") from None
    if not math.isfinite(number):
        raise UserValueFault(f"{must} finite number, got {number}")
    return number


def metrics_of(value: object, title: str = "metrics") -> dict[str, float]:
    """Return metrics, finite numbers by name; None stands for none."""
    if value is None:
        return {}
    metrics = {}
    for name, number in _items(value, title, "numbers by name", MOST_METRICS):
        if not isinstance(name, str) or not name.strip() or len(name) > MOST_NAME_CHARS:
            allowed = f"a text of 1 to {MOST_NAME_CHARS} characters"
            raise UserValueFault(f"{title}: a name must be {allowed}, got {described(name)}")
        try:
            metrics[str.__str__(name)] = number_of(number, f"{title}: {str.__str__(name)!r} must be a")
        except UserValueFault as fault:
            raise UserValueFault(f"{fault}; leave it out where it is not known") from None
    if len(metrics) > MOST_METRICS:
        raise UserValueFault(f"{title}: holds more than {MOST_METRICS} numbers; return those that you will compare")
    return metrics


def fields_of(value: object, title: str) -> dict[str, Any]:
    """Return further fields, anything by name, as plain JSON of a bounded size that says what it leaves out.

    Values without a JSON form become their text. None stands for no fields.
    """
    if value is None:
        return {}
    fields: dict[str, Any] = {}
    for name, field in _items(value, title, "a mapping of fields", MOST_FIELDS):
        if len(fields) == MOST_FIELDS:
            fields["..."] = f"fields after the first {MOST_FIELDS} are left out"
            break
        try:
            text = dumps({str(name): field})
            [(key, plain)] = json.loads(text).items()
        except (ValueError, TypeError, RecursionError) as error:
            words = error_in_words(error)
            raise UserValueFault(f"{title}: {described(name)} cannot be written as JSON: {words}") from None
        fields[shortened(key, MOST_NAME_CHARS)] = _bounded(plain, text)
    return fields


def metrics_and_fields(value: object, title: str) -> tuple[dict[str, float], dict[str, Any]]:
    """Return the numbers among values by name as metrics, and all others as fields."""
    metrics: dict[str, float] = {}
    fields: dict[str, Any] = {}
    for name, each in _items(value, title, "numbers by name"):
        try:
            metrics |= metrics_of({name: each})
        except UserValueFault:
            fields |= fields_of({name: each}, title)
    return metrics_of(metrics, title), fields


def _items(value: object, title: str, kind: str, most: int | None = None) -> list[tuple[object, object]]:
    """Return the items of a mapping, at most one more than `most`."""
    if not isinstance(value, Mapping):
        raise UserValueFault(f"{title}: must be {kind}, got {type_name(value)}: {described(value)}")
    return [(name, value[name]) for name in islice(iter(value), most and most + 1)]


def _bounded(plain: Any, text: str) -> Any:
    if len(text) <= MOST_FIELD_CHARS and _depth(text) <= DEEPEST_FIELD:
        return plain
    return shortened(plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False), MOST_FIELD_CHARS)


def _depth(text: str) -> int:
    """Return an upper bound of the nesting of a JSON text."""
    return text.count("[") + text.count("{")
