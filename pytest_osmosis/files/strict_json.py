"""JSON that others wrote, without what Python's parser accepts beyond the standard: NaN, infinities, any nesting."""

from __future__ import annotations

import json
import math
from typing import Any, NoReturn

from pytest_osmosis.text.safe import one_line

DEEPEST = 500


class JsonFault(ValueError):
    """The reason why text is not JSON, in one line. `fix` says what to write instead, if that is known."""

    def __init__(self, text: str, fix: str = "") -> None:
        super().__init__(text)
        self.fix = fix


def parsed(text: str, *, deepest: int = DEEPEST, repeats: bool = True) -> Any:
    """Return the value of a JSON text. Raises `JsonFault`, also for a value nested deeper than `deepest`.

    Without `repeats`, a key that is in an object twice is a fault too.
    """
    try:
        value = (DECODER if repeats else WITHOUT_REPEATS).decode(text)
    except JsonFault:
        raise
    except RecursionError:
        raise JsonFault(f"it is nested deeper than {deepest}") from None
    except ValueError as error:  # no JSON, or a number with thousands of digits
        raise JsonFault(str(error)) from None
    if len(text) > 2 * deepest and text.count("[") + text.count("{") > deepest and depth(value) > deepest:
        raise JsonFault(f"it is nested deeper than {deepest}")
    return value


def depth(value: object) -> int:
    """Return how deep lists and objects are nested.

    >>> depth({"a": [1, []]}), depth(1)
    (3, 0)
    """
    level, levels = [value], 0
    while containers := [item for item in level if isinstance(item, (dict, list))]:
        levels += 1
        level = [inner for item in containers for inner in (item.values() if isinstance(item, dict) else item)]
    return levels


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise JsonFault(f"{text[:40]} is too large for a float", "write it as a string")
    return number


def _refused(text: str) -> NoReturn:
    raise JsonFault(f"{text} is not JSON", "use null or a finite number")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise JsonFault(f'key "{one_line(twice, 100)}" appears more than once in one object', "keep one")
    return value


DECODER = json.JSONDecoder(parse_float=_finite, parse_constant=_refused)
WITHOUT_REPEATS = json.JSONDecoder(parse_float=_finite, parse_constant=_refused, object_pairs_hook=_without_repeats)
