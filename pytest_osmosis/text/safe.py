"""Text of models and user code made safe to show, and JSON objects on one ASCII line each, whatever they contain."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

LINE_CHARS = 400
MOST_MARKS = 4
"""More combining marks than this on one character are left out: no script needs them."""

_CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufff0-\uffff"
_DIRECTIONS = r"\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
_UNSEEN = (
    r"\xad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b\u2060-\u2065\u206a-\u206f\u3164\ufe00-\ufe0d\ufeff\uffa0"
    r"\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000effff"
)
_JOINED = r"\u0590-\u1fff\u2190-\u2bff\u3030\ua800-\uabff\ufe0f\U00010a00-\U000113ff\U0001f000-\U0001faff"
"""Scripts and emoji that use the joiners U+200C and U+200D, which are shown as escapes after anything else."""
_COMMANDS = (
    r"(?P<command>(?:^|(?<=\n))[^\S\n]*:(?=:)|\#(?=\#(?:\[|[Vv][Ss][Oo]\[|[Tt][Ee][Aa][Mm][Cc][Ii][Tt][Yy]\[))"
    r"|section(?=_(?:start|end):))"
)
"""The beginnings of what a runner of CI executes if it finds it in a log: GitHub Actions, Azure, TeamCity, GitLab."""
_MARKS = (
    r"\u0300-\u036f\u0483-\u0489\u0591-\u05bd\u064b-\u065f\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1-\u0ebc\u0ec8-\u0ece"
    r"\u0f71-\u0f84\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe0e\ufe0f\ufe20-\ufe2f"
)
_UNSAFE = re.compile(
    rf"{_COMMANDS}|[{_CONTROLS}{_DIRECTIONS}{_UNSEEN}]|(?<![{_JOINED}])[\u200c\u200d]"
    rf"|(?P<marks>(?<=[{_MARKS}]{{{MOST_MARKS}}})[{_MARKS}]+)"
)
_ASCII_SUSPECTS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]|::|##|section_")
MAX_CHARS = 100_000
"""The text of an object without a JSON form has no more characters."""
loads: Callable[[str], Any] = json.JSONDecoder().decode
"""Like the encoder, made at import, so that user code cannot replace it in the module `json`."""


def escaped(text: str) -> str:
    r"""Return `text` with everything as escapes that a terminal or a runner of CI would obey, or that nobody can see.

    These are control sequences, direction marks, line separators, lone surrogates, invisible characters and workflow
    commands.

    >>> print(escaped("a\x1b[31mb"), escaped("::error::x"), escaped("##vso[task]"))
    a\x1b[31mb \::error::x #\#vso[task]
    """
    if text.isascii() and not _ASCII_SUSPECTS.search(text):
        return text
    return _UNSAFE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(match: re.Match[str]) -> str:
    if match["command"]:
        return f"{match[0]}\\" if match[0][0] in "#s" else _UNSAFE.sub(_escape, match[0][:-1]) + "\\:"
    if match["marks"]:
        return f"[... {len(match[0]):,} combining marks left out ...]"
    return ascii(match[0])[1:-1]


def encodable(text: str, encoding: str | None) -> str:
    r"""Return `text` with escapes for what an encoding does not have; None is UTF-8.

    >>> encodable("\u2265 0.7", "latin-1")
    '\\u2265 0.7'
    """
    encoding = encoding or "utf-8"
    return text if text.isascii() else text.encode(encoding, "backslashreplace").decode(encoding)


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


def fitted_middle(text: str, columns: int) -> str:
    """Return `text`, without its middle if it is wider than `columns`.

    >>> fitted_middle("regression_suite_17", 12), fitted_middle("日本語の評価", 9), fitted_middle("short", 8)
    ('regre...e_17', '日...価', 'short')
    """
    if width(text) <= columns:
        return text
    room = max(0, columns - 3)
    end = len(text)
    while end and width(text[end - 1 :]) <= room // 2:
        end -= 1
    start = 0
    while start < end and width(text[: start + 1]) <= room - width(text[end:]):
        start += 1
    return f"{text[:start]}...{text[end:]}"[:columns]


def _columns(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def dumps(message: Mapping[str, Any] | Sequence[Any]) -> str:
    try:
        return _encode(message)
    except (ValueError, TypeError):
        return _encode(_finite(message))


def _text(value: object) -> str:
    return shortened(str(value), MAX_CHARS)


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False, default=_text).encode


def _finite(value: Any) -> Any:
    """Return `value` with NaN, infinities and keys as text. A conversation can contain any of them."""
    if isinstance(value, float):
        return value if value - value == 0 else str(value)
    if isinstance(value, Mapping):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return value
