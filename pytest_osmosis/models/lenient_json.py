"""JSON from outside: numbers that cannot be kept become None, and deep nesting is refused.

Numbers that are not finite, or have more than 64 bits, become None: their value is unknown. What is nested deeper than
MAX_DEPTH is refused, because Python's own recursion would end somewhere later.
"""

from __future__ import annotations

import json
import math
from typing import Any

from pytest_osmosis.files.reading import depth
from pytest_osmosis.models.base import LARGE_INT

MAX_DEPTH = 100


class TooDeep(ValueError):
    """JSON that is nested deeper than MAX_DEPTH."""


def read(text: str) -> Any:
    """Return the value of `text`. Raises `ValueError` if it is not JSON, `TooDeep` if it is nested too deeply."""
    try:
        value = _read(text)
    except RecursionError:
        raise TooDeep from None
    if text.count("[") + text.count("{") > MAX_DEPTH and depth(value) > MAX_DEPTH:
        raise TooDeep
    return value


def _not_a_number(_constant: str) -> None:
    """Return None for NaN and Infinity, because replies are written as strict JSON."""


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


def _of_64_bits(literal: str) -> int | None:
    if len(literal) > len(str(-LARGE_INT)):
        return None
    number = int(literal)
    return number if -LARGE_INT <= number < LARGE_INT else None


_read = json.JSONDecoder(parse_constant=_not_a_number, parse_float=_finite, parse_int=_of_64_bits).decode
