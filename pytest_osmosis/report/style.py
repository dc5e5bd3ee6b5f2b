"""Text with styles, which mean something and name no colour: a painter turns them into colours at the very end.

A `StyledText` is a string that remembers the styles of its parts, so whatever reads text reads it as plain text.
`joined` puts texts together and keeps their styles; any other operation on strings drops them.

Styles cross the sanitizer as positions, never as control characters: `painted` lets the sanitizer clean the text, and
then paints it. So no text that somebody else wrote can colour anything. Tables of such texts keep their styles.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from itertools import accumulate, pairwise
from typing import Literal

from pytest_osmosis.text.safe import width

Style = Literal["good", "bad", "warning", "dim", "bold"]
Painter = Callable[[str, Style], str]
"""Returns a text in the colour of a style."""

STATUSES: Mapping[str, Style] = {
    "pending": "bold",
    "running": "bold",
    "stopped": "warning",
    "failed": "bad",
    "unreadable": "bad",
}
"""The style of each status of an eval run; one that is finished has none."""

_CODES: dict[Style, int] = {"good": 32, "bad": 31, "warning": 33, "dim": 2, "bold": 1}


class StyledText(str):
    """A string with a style for each of its `pieces`; None is no style."""

    __slots__ = ("pieces",)

    pieces: tuple[tuple[str, Style | None], ...]

    def __new__(cls, *pieces: tuple[str, Style | None]) -> StyledText:
        made = super().__new__(cls, "".join(text for text, _ in pieces))
        made.pieces = pieces
        return made


def _styled(style: Style, text: str) -> StyledText:
    return StyledText((text, style))


good = partial(_styled, "good")
bad = partial(_styled, "bad")
warning = partial(_styled, "warning")
"""A text about something that was not measured, or that may mislead."""
dim = partial(_styled, "dim")
bold = partial(_styled, "bold")
"""A text that the eye looks for first."""


def joined(*texts: str) -> StyledText:
    """Return the texts as one, each in its own style.

    >>> joined("gate x: ", good("HOLDS"), ": 9 of 10 rows")
    'gate x: HOLDS: 9 of 10 rows'
    """
    return StyledText(*(piece for text in texts for piece in pieces_of(text)))


def separated(separator: str, texts: Sequence[str]) -> StyledText:
    """Return the texts as one, with a separator between them.

    >>> separated(", ", [good("1 holds"), "2 without a gate"])
    '1 holds, 2 without a gate'
    """
    return joined(*(part for number, text in enumerate(texts) for part in ((separator, text) if number else (text,))))


def pieces_of(text: str) -> tuple[tuple[str, Style | None], ...]:
    """Return the pieces of a text with their styles; a plain string is one piece without a style."""
    return text.pieces if isinstance(text, StyledText) else ((text, None),)


def painted(text: str, shown: Callable[[str], str], paint: Painter) -> str:
    """Return a text as its sanitizer `shown` lets it pass, with its styles painted.

    If the sanitizer changes something that spans pieces, a secret for example, the text stays without colours.
    """
    whole = shown(str(text))
    pieces = [(shown(piece), style) for piece, style in pieces_of(text)]
    if "".join(piece for piece, _ in pieces) != whole:
        return whole
    return "".join(piece if style is None or not piece else paint(piece, style) for piece, style in pieces)


def ansi(text: str, style: Style) -> str:
    r"""Return a text with the escape sequences that show its style on a terminal.

    >>> ansi("HOLDS", "good")
    '\x1b[32mHOLDS\x1b[0m'
    """
    return f"\x1b[{_CODES[style]}m{text}\x1b[0m"


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
    lines: list[str] = []
    for table in tables:
        places = [index for index, column in enumerate(table) if column in left]
        lines += ["", *aligned([[row[column] for column in table] for row in rows], places)]
    return lines[1:]


def table_width(rows: Sequence[Sequence[str]]) -> int:
    return _width(rows, range(len(rows[0])))


def _width(rows: Sequence[Sequence[str]], columns: Sequence[int]) -> int:
    return sum(max(width(row[column]) for row in rows) + 2 for column in columns) - 2


def _line(row: Sequence[str], widths: Sequence[int], left: Collection[int]) -> str:
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
