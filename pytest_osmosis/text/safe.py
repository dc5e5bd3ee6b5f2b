"""Text of models and user code, made safe to show."""

from __future__ import annotations

import re
import unicodedata

LINE_CHARS = 400
CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)


def escaped(text: str) -> str:
    r"""Return `text` with control sequences, direction marks, line separators and lone surrogates as escapes.

    >>> print(escaped("a\x1b[31mb"))
    a\x1b[31mb
    """
    return CONTROL.sub(lambda match: ascii(match[0])[1:-1], text.replace("\r\n", "\n"))


def shortened(text: str, limit: int) -> str:
    """Return `text` without its middle if it has more than `limit` characters (`limit` is at least 100)."""
    if len(text) <= limit:
        return text
    half = (limit - 40) // 2
    return f"{text[:half]} [... {len(text) - 2 * half:,} characters left out ...] {text[-half:]}"


def one_line(text: str, limit: int = LINE_CHARS) -> str:
    """Return `text` on one line, shortened to about `limit` characters."""
    return escaped(shortened(" ".join(text.split()), limit))


def width(text: str) -> int:
    """Return the number of terminal columns of `text`: two for wide characters, none for combining ones.

    >>> width("abc"), width("日本"), width("e\u0301")
    (3, 4, 1)
    """
    return len(text) if text.isascii() else sum(map(_columns, text))


def fitted(text: str, columns: int) -> str:
    """Return `text`, cut at the end if it is wider than `columns`.

    >>> fitted("日本語の評価", 8), fitted("short", 8)
    ('日本...', 'short')
    """
    if width(text) <= columns:
        return text
    kept = text
    while kept and width(kept) > columns - 3:
        kept = kept[:-1]
    return f"{kept}..."[:columns]


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1
