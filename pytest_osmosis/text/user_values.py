"""Numbers, metrics and further fields of user code as plain data.

Like the functions of `user_objects`, those here may run user code. Each raises `UserValueFault` for what it cannot
take, with a text that says what to do.
"""

from __future__ import annotations

import json
import math
import numbers
from collections.abc import Mapping
from itertools import islice
from typing import Any

from pytest_osmosis.text.json_line import dumps
from pytest_osmosis.text.safe import shortened
from pytest_osmosis.text.user_objects import described, error_in_words, type_name

MOST_METRICS = 100
MOST_NAME_CHARS = 100
MOST_FIELDS = 50
MOST_FIELD_CHARS = 2_000
DEEPEST_FIELD = 20


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
