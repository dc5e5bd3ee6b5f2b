"""The lines of keys in a TOML file.

`tomli` does not report lines, so this module scans the text a second time, after tomli has accepted it. At syntax that
the scanner does not know, it stops and keeps the lines it has. `Lines.of` then returns the line of the table.

Grammar: https://toml.io/en/v1.1.0
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from pytest_osmosis.config.kinds import key_text

Keys = tuple[str, ...]
Place = tuple[str | int, ...]
"""Keys that lead to a value, with the positions of elements in arrays: `("eval", 1, "temperature")`."""

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_EQUALS = re.compile("=")
_SPACE = re.compile(r"[ \t]*")
_REST_OF_LINE = re.compile(r"[^\n]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(
    r'"""(?:[^\\]|\\[\s\S])*?"""(?:"{0,2})'
    r"|'''[\s\S]*?'''(?:'{0,2})"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
)
_SCALAR = re.compile(r"[^,\]}#\n]+")


class Lines:
    """The line on which each table and key of a TOML text first appears."""

    def __init__(self, text: str) -> None:
        scanner = _Scanner(text)
        self._lines: dict[Place, int] = scanner.elements
        self._lines.update(scanner.lines().items())

    def of(self, *keys: str | int) -> int:
        """Return the line of a key, or else of the innermost table around it with a known line, or else 1.

        Without the position of an element, the first one counts.

        >>> Lines("[model]\\nheaders = {a = 'b'}").of("model", "headers", "a")
        2
        >>> Lines("[[eval]]\\n[[eval]]\\nn = [1,\\n2]").of("eval", 1, "n", 1)
        4
        """
        for size in range(len(keys), 0, -1):
            line = self._lines.get(keys[:size])
            if line is not None:
                return line
        return 1


class Repeated(NamedTuple):
    """A table or a key that a text has twice: the keys that lead to it, and the lines of both."""

    keys: Keys
    is_table: bool
    first: int
    line: int

    @property
    def title(self) -> str:
        """The table or the key as messages name it: `[experiment] dataset`."""
        table, below = (self.keys, ()) if self.is_table else (self.keys[:1], self.keys[1:])
        if not self.is_table and not below:
            return key_text(self.keys[0])
        return " ".join(filter(None, (f"[{'.'.join(map(key_text, table))}]", ".".join(map(key_text, below)))))


def first_repeated(text: str) -> Repeated | None:
    """Return the first table or key that a text has twice, None if there is none.

    >>> first_repeated("[data]\\nseed = 1\\nseed = 2").title
    '[data] seed'
    """
    scanner = _Scanner(text)
    scanner.lines()
    return scanner.repeated


class _Unknown(Exception):
    """The scanner does not know the syntax that follows."""


class _Scanner:
    """One pass over a text. `written` holds the keys and headers of the text, `implied` the tables above them.

    `elements` holds the places that lead through an array.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.line = 1
        self.written: dict[Keys, int] = {}
        self.implied: dict[Keys, int] = {}
        self.given: dict[Keys, int] = {}  # without those of earlier elements of an array of tables
        self.repeated: Repeated | None = None
        self.elements: dict[Place, int] = {}
        self._sizes: dict[Keys, int] = {}  # of the arrays of tables so far

    def lines(self) -> dict[Keys, int]:
        with suppress(_Unknown, RecursionError):
            self.document()
        return self.implied | self.written

    def document(self) -> None:
        table: Keys = ()
        place: Place = ()
        self.match(_BLANK)
        while self.at < len(self.text):
            if self.peek() == "[":
                table = self.header()
                place = self.place_of(table)
            else:
                self.pair(table, place)
            self.match(_REST_OF_LINE)
            self.match(_BLANK)

    def header(self) -> Keys:
        brackets = 0
        while self.peek() == "[":
            self.at += 1
            brackets += 1
        line = self.line
        keys = self.key()
        if brackets > 1:
            self.given = {given: at for given, at in self.given.items() if given[: len(keys)] != keys}
            size = self._sizes.get(keys, 0)
            self._sizes = {array: n for array, n in self._sizes.items() if array[: len(keys)] != keys}
            self._sizes[keys] = size + 1
        self.record((), keys, line, is_table=True)
        self.record_element(self.place_of(keys), line)
        return keys

    def place_of(self, keys: Keys) -> Place:
        """Return the place of a table: each array of tables on the way is at its last element."""
        place: Place = ()
        for size in range(1, len(keys) + 1):
            n = self._sizes.get(keys[:size])
            place += (keys[size - 1],) if n is None else (keys[size - 1], n - 1)
        return place

    def pair(self, table: Keys | None, place: Place) -> None:
        line = self.line
        keys = self.key()
        if table is not None:
            self.record(table, keys, line)
        for size in range(1, len(keys) + 1):
            self.record_element((*place, *keys[:size]), line)
        self.match(_EQUALS)
        self.match(_SPACE)
        self.value(None if table is None else table + keys, (*place, *keys))

    def value(self, keys: Keys | None, place: Place) -> None:
        if self.peek() == "{":
            self.items("}", lambda: self.pair(keys, place))
        elif self.peek() == "[":
            self.items("]", partial(self.element, place, itertools.count()))
        elif self.peek() in "\"'":
            self.match(_STRING)
        else:
            self.match(_SCALAR)

    def element(self, place: Place, positions: Iterator[int]) -> None:
        at = (*place, next(positions))
        self.record_element(at, self.line)
        self.value(None, at)

    def items(self, end: str, item: Callable[[], None]) -> None:
        self.at += 1
        self.match(_BLANK)
        while self.peek() != end:
            item()
            self.match(_BLANK)
            if self.peek() == ",":
                self.at += 1
                self.match(_BLANK)
            elif self.peek() != end:
                raise _Unknown
        self.at += 1

    def key(self) -> Keys:
        parts = [self.key_part()]
        while self.peek() == ".":
            self.at += 1
            parts.append(self.key_part())
        return tuple(parts)

    def key_part(self) -> str:
        self.match(_SPACE)
        raw = self.match(_STRING if self.peek() in "\"'" else _BARE_KEY)
        self.match(_SPACE)
        return _unquoted(raw) if raw[0] in "\"'" else raw

    def record(self, table: Keys, keys: Keys, line: int, *, is_table: bool = False) -> None:
        for size in range(1, len(keys)):
            self.implied.setdefault(table + keys[:size], line)
        self.written.setdefault(table + keys, line)
        if self.repeated is None and table + keys in self.given:
            self.repeated = Repeated(table + keys, is_table, self.given[table + keys], line)
        self.given[table + keys] = line

    def record_element(self, place: Place, line: int) -> None:
        if any(isinstance(key, int) for key in place):
            self.elements.setdefault(place, line)

    def peek(self) -> str:
        if self.at >= len(self.text):
            raise _Unknown
        return self.text[self.at]

    def match(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.at)
        if match is None:
            raise _Unknown
        self.at = match.end()
        self.line += match[0].count("\n")
        return match[0]


def _unquoted(raw: str) -> str:
    import tomli

    try:
        return str(tomli.loads(f"key = {raw}")["key"])
    except tomli.TOMLDecodeError:
        raise _Unknown from None
