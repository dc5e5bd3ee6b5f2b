"""Rows of text as columns."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate, pairwise

from pytest_osmosis.report.style import joined
from pytest_osmosis.text.safe import width


def aligned(rows: Sequence[Sequence[str]], left: Collection[int] = (0,)) -> list[str]:
    """Return rows as lines with aligned columns: those in `left` to the left, the others to the right.

    Cells keep their styles.
    """
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [_line(row, widths, left) for row in rows]


def fitted_tables(
    rows: Sequence[Sequence[str]], together: Sequence[int], columns: int | None, left: Collection[int] = (0,)
) -> list[str]:
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
    texts = [_table(rows, table, left) for table in tables]
    return [line for text in texts for line in ("", *text)][1:]


def table_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the width of the rows as one table."""
    return _width(rows, range(len(rows[0])))


def _width(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return sum(max(width(row[column]) for row in rows) + 2 for column in columns) - 2


def _table(rows: Sequence[Sequence[str]], columns: Sequence[int], left: Collection[int]) -> list[str]:
    place = [index for index, column in enumerate(columns) if column in left]
    return aligned([[row[column] for column in columns] for row in rows], place)


def _line(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
    """Return the cells as one line, without spaces at its end."""
    pieces: list[str] = []
    space = ""
    for column, (cell, columns) in enumerate(zip(row, widths, strict=True)):
        padding = " " * (columns - width(cell))
        before, after = ("", padding) if column in left else (padding, "")
        if cell:
            pieces += [space + before, cell]
            space = ""
        space += ("" if cell else before) + after + "  "
    return joined(*pieces)
