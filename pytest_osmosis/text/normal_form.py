r"""The normal form of a text: without blanks, invisible characters and backslashes, and with escapes decoded.

A secret may come back split over lines, or escaped for JSON, HTML or a URL. In the normal form it reads the same. The
escapes are `\u0041`, `\x41`, `%41` (UTF-8) and `&#65;` with its relatives, also if they were escaped again themselves.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_right
from typing import NamedTuple
from urllib.parse import unquote

_INVISIBLE_ASCII = r"\x00-\x20\x7f"
_INVISIBLE = r"\x80-\xa0\xad\u034f\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ufeff"
_ESCAPE = re.compile(
    r"(?<!\\)\\++(?:u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2})"
    r"|%(?:25)*[0-7][0-9a-fA-F]|(?:%(?:25)*[89a-fA-F][0-9a-fA-F])+"
    r"|&(?:amp;)*(?:\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});"
)
_AGAIN_IN_URL = re.compile(r"%(?:25)+(?=[0-9a-fA-F]{2})")
_AGAIN_IN_HTML = re.compile(r"&(?:amp;)+(?=[#A-Za-z])")
_BACKSLASHES = re.compile(r"\\+[nrtbf]?")
_BLANKS = f"{_INVISIBLE_ASCII}{_INVISIBLE}"
_TOKEN = re.compile(rf"{_ESCAPE.pattern}|{_BACKSLASHES.pattern}|[{_BLANKS}]+")
_LEFT_OUT = re.compile(rf"[{_BLANKS}\\]+")
_LEFT_OUT_WIDE = re.compile(f"[{_INVISIBLE}]")
_LEFT_OUT_ASCII = bytes([*range(0x21), 0x7F, ord("\\")])


def normal_form(text: str) -> str:
    r"""Return the normal form.

    >>> normal_form("sk-a b\\u0063&#100;%65\n"), normal_form("C:\\new")
    ('sk-abcde', 'C:ew')
    """
    if "\\" in text or "%" in text or "&" in text:
        text = _BACKSLASHES.sub("", _ESCAPE.sub(_decoded_match, text))
    if not text.isascii():
        text = _LEFT_OUT_WIDE.sub("", text)
    return text.encode("utf-8", "surrogatepass").translate(None, _LEFT_OUT_ASCII).decode("utf-8", "surrogatepass")


def without_blanks(text: str) -> str:
    """Return the text without what its normal form leaves out, but with its escapes."""
    return _LEFT_OUT.sub("", text)


class NormalForm:
    """The normal form of a text, from which places lead back to the text."""

    def __init__(self, text: str) -> None:
        pieces: list[str] = []
        self._runs: list[_Run] = []
        length, end = 0, 0
        for token in _TOKEN.finditer(text):
            if token.start() > end:
                pieces.append(text[end : token.start()])
                self._runs.append(_Run(length, end, token.start(), literal=True))
                length += token.start() - end
            if decoded := _decoded(token[0]):
                pieces.append(decoded)
                self._runs.append(_Run(length, token.start(), token.end(), literal=False))
                length += len(decoded)
            end = token.end()
        pieces.append(text[end:])
        self._runs.append(_Run(length, end, len(text), literal=True))
        self._starts = [run.at for run in self._runs]
        self.text = "".join(pieces)

    def span(self, start: int, end: int) -> tuple[int, int]:
        """Return the place in the text of `self.text[start:end]`. An escape belongs to it as a whole."""
        return self._run(start).begin(start), self._run(end - 1).end(end)

    def _run(self, place: int) -> _Run:
        return self._runs[bisect_right(self._starts, place) - 1]


class _Run(NamedTuple):
    """A stretch of a normal form: `at` is its place there, `first` and `last` bound what it stands for."""

    at: int
    first: int
    last: int
    literal: bool

    def begin(self, place: int) -> int:
        return self.first + place - self.at if self.literal else self.first

    def end(self, place: int) -> int:
        return self.first + place - self.at if self.literal else self.last


def _decoded_match(token: re.Match[str]) -> str:
    return _decoded(token[0])


def _decoded(token: str) -> str:
    """Return the characters of an escape that the normal form keeps, "" for anything else that it leaves out."""
    kind = token[0]
    if kind == "%":
        return _LEFT_OUT.sub("", unquote(_AGAIN_IN_URL.sub("%", token), errors="replace"))
    if kind == "&":
        return _LEFT_OUT.sub("", html.unescape(_AGAIN_IN_HTML.sub("&", token)))
    digits = token.lstrip("\\")
    if kind != "\\" or digits[:1] not in ("u", "x"):
        return ""
    high, _, low = digits[1:].partition("\\")
    char = chr(int(high, 16))
    if low:
        low = low.lstrip("\\")[1:]
        char = chr(0x10000 + ((int(high, 16) - 0xD800) << 10) + int(low, 16) - 0xDC00)
    return _LEFT_OUT.sub("", char)
