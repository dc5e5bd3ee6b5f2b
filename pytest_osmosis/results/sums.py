"""Sums of counts and of costs, some of which may not be known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

_Count = TypeVar("_Count", int, float)


def summed(counts: Iterable[Mapping[str, _Count]]) -> dict[str, _Count]:
    """Return the sums of counts by name."""
    total: dict[str, _Count] = {}
    for each in counts:
        for name, count in each.items():
            total[name] = total.get(name, 0) + count
    return total


def sum_of_known(costs: Iterable[float | None]) -> float | None:
    """Return the sum of the known costs, None if no cost is known."""
    known = [cost for cost in costs if cost is not None]
    return round(math.fsum(known), 12) if known else None


def sum_of_all(costs: Iterable[float | None]) -> float | None:
    """Return the sum of all costs, None if one is not known."""
    found = list(costs)
    return None if None in found else sum_of_known([0.0, *found])
