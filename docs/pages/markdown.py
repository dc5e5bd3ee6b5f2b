"""Markdown for the generated pages: items, cells, tables, pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator


def cell(text: str) -> str:
    """Escape text for the cell of a table.

    >>> print(cell("PATH|- is <stdin>"))
    PATH\\|- is \\<stdin>
    """
    return text.replace("|", "\\|").replace("<", "\\<")


def escape(text: str) -> str:
    r"""Escape text for an item of a list.

    >>> print(escape("- is <stdin>"))
    - is \<stdin>
    """
    return text.replace("<", "\\<")


def item(name: str, text: str) -> str:
    """Return the item of a list that tells about a name in code."""
    return f"- `{name}`: {text}"


def concise(text: str) -> str:
    """Return a description without what many of them begin with.

    >>> concise("The number of rows with runs."), concise("The text of the message.")
    ('Rows with runs.', 'Text of the message.')
    """
    rest = re.sub(r"^The (number of (?!this |the ))?", "", text)
    return text if rest == text else rest[:1].upper() + rest[1:]


def code(text: str) -> str:
    """Return text as code for the cell of a table."""
    return f"`{text.replace('|', chr(92) + '|')}`"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> Iterator[str]:
    """Yield the lines of a table."""
    names = list(head)
    yield _line(names).replace("|  |", "| |")
    yield "|" + "---|" * len(names)
    yield from map(_line, rows)


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def page(parts: Iterable[Iterable[str] | str]) -> str:
    """Join parts, each text or lines, with an empty line between them."""
    texts = [part if isinstance(part, str) else "\n".join(part) for part in parts]
    return "\n".join(f"{text.strip(chr(10))}\n" for text in texts)
