"""Rows of text as columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise

from pytest_osmosis.text.safe import width


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows as lines with aligned columns, the first one to the left and the others to the right."""
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(_padded, range(len(widths)), row, widths)).rstrip() for row in rows]


def fitted_tables(rows: Sequence[Sequence[str]], together: Sequence[int], columns: int | None) -> list[str]:
    """Return rows as lines, in several tables if one would be wider than `columns` characters.

    `together` holds the sizes of groups of columns, from the left, that stay in one table. The first group names the
    rows and is repeated in each table.
    """
    bounds = list(accumulate(together, initial=0))
    names, *groups = [range(*ends) for ends in pairwise(bounds)]
    tables = [[*names]]
    for group in filter(len, groups):
        wider = [*tables[-1], *group]
        if columns is None or len(tables[-1]) == len(names) or _width(rows, wider) <= columns:
            tables[-1] = wider
        else:
            tables.append([*names, *group])
    texts = [aligned([[row[column] for column in table] for row in rows]) for table in tables]
    return [line for text in texts for line in ("", *text)][1:]


def _width(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return sum(max(width(row[column]) for row in rows) + 2 for column in columns) - 2


def _padded(column: int, cell: str, columns: int) -> str:
    space = " " * (columns - width(cell))
    return space + cell if column else cell + space
