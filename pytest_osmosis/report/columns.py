"""Rows of text as columns."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.report.text import width


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as columns: the first to the left, the others to the right."""
    widths = [max(width(row[column]) for row in rows) for column in range(len(rows[0]))]
    return ["  ".join(map(_padded, range(len(widths)), row, widths)).rstrip() for row in rows]


def _padded(column: int, cell: str, columns: int) -> str:
    space = " " * (columns - width(cell))
    return space + cell if column else cell + space
