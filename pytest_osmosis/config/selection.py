"""The selection of rows: the syntax of `rows`, and the `RowSelection` that all levels of precedence result in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Literal

from pytest_osmosis.config.kinds import ValueKind, refuse, toml
from pytest_osmosis.config.tables import RowSelection

Ranges = tuple[tuple[int, int], ...]  # inclusive, of row indices

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
    match = _PART.fullmatch(part)
    if match is None:
        raise refuse(f"must be {ROWS_EXPECTED}; {toml(part)} is neither a number nor a range")
    first, last = int(match[1]), int(match[2] or match[1])
    if last < first:
        raise refuse(f'must be {ROWS_EXPECTED}; {toml(part)} is backwards, write "{last}-{first}"')
    return first, last


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges in order. Ranges that overlap or touch are joined.

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


def _selected_by(level: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    """Return the keys of a level that select rows: `rows`, or else `offset` and `limit`."""
    keys = {name: level[place] for name, place in SELECTING.items() if place in level}
    return {"rows": keys["rows"]} if "rows" in keys else keys


def selecting_keys(levels: Iterable[Mapping[tuple[str, str], Any]]) -> frozenset[tuple[str, str]]:
    """Return the keys of the highest level that selects rows."""
    keys = next(filter(None, map(_selected_by, levels)), {})
    return frozenset(SELECTING[name] for name in keys)


def selection(levels: Iterable[Mapping[tuple[str, str], Any]], default: RowSelection) -> RowSelection:
    """Return the selection of the highest level that selects rows. An offset alone selects all rows after it."""
    keys = next(filter(None, map(_selected_by, levels)), None)
    if keys is None:
        return default
    return RowSelection(**({"limit": "all"} | keys if "offset" in keys else keys))
