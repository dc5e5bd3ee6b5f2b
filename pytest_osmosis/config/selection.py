"""Which rows are evaluated: the syntax of `rows`, and how the levels of precedence make one `RowSelection`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pytest_osmosis.config.kinds import ValueKind, refuse, toml
from pytest_osmosis.config.tables import RowSelection

Ranges = tuple[tuple[int, int], ...]
"""Inclusive ranges of row indices."""

ROWS_EXPECTED = 'row numbers and inclusive ranges like "3,7,10-20", or "all"'
_PART = re.compile(r"([0-9]{1,18})(?:\s*-\s*([0-9]{1,18}))?")


def rows() -> ValueKind:
    """Row numbers and ranges, kept sorted and merged, or "all"."""

    def read(value: Any) -> Ranges | Literal["all"]:
        if not isinstance(value, str):
            raise refuse(f"must be {ROWS_EXPECTED}, as a string")
        return "all" if value.strip() == "all" else merged(_range(part.strip()) for part in value.split(","))

    return ValueKind(ROWS_EXPECTED, read, schema={"type": "string"})


def _range(part: str) -> tuple[int, int]:
    found = _PART.fullmatch(part)
    if found is None:
        raise refuse(f"must be {ROWS_EXPECTED}; {toml(part)} is neither a number nor a range")
    first, last = int(found.group(1)), int(found.group(2) or found.group(1))
    if last < first:
        raise refuse(f'must be {ROWS_EXPECTED}; {toml(part)} is backwards, write "{last}-{first}"')
    return first, last


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges in order, with those that overlap or touch joined.

    >>> merged([(10, 20), (3, 3), (4, 5), (15, 30)])
    ((3, 5), (10, 30))
    """
    result: list[tuple[int, int]] = []
    for first, last in sorted(ranges):
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(last, result[-1][1]))
        else:
            result.append((first, last))
    return tuple(result)


SELECTING = {"rows": ("data", "rows"), "offset": ("data", "offset"), "limit": ("evaluation", "limit")}
"""Where the keys that select rows stand."""


def effective(level: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """What one level selects: `rows`, else `offset` and `limit`, those of them that it gives."""
    given = {name: level[place] for name, place in SELECTING.items() if place in level}
    return {"rows": given["rows"]} if "rows" in given else given


def effective_places(levels: Iterable[Mapping[tuple[str, str], Any]]) -> frozenset[tuple[str, str]]:
    """The keys that select: those of the first level that gives any."""
    found = next(filter(None, map(effective, levels)), {})
    return frozenset(SELECTING[name] for name in found)


def selection(levels: Iterable[Mapping[tuple[str, str], Any]], without: RowSelection) -> RowSelection:
    """The selection of the first level that gives any, else `without`; an offset alone takes all rows from there on."""
    for level in levels:
        given = effective(level)
        if given:
            return RowSelection(**({"limit": "all"} | given if "offset" in given else given))
    return without
