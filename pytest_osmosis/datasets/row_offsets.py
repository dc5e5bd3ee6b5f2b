"""The positions of rows in a text file, from one pass that keeps at most one row and one chunk in memory.

The pass decodes bytes as Latin-1, one character per byte, so that positions in the text are positions in the file. All
structure of JSON and CSV is ASCII. Rows are decoded as UTF-8 only when they are read. A file in which rows cannot be
separated raises `Unscannable`.
"""

from __future__ import annotations

import csv
import json
import re
import threading
from array import array
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 18
_JSON_SPACE = re.compile(r"[ \t\n\r]*")


class Extent(NamedTuple):
    """The bytes of one row, from `start` to `end`, and the 1-based line on which it starts."""

    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class Extents:
    """The extents of all rows, in 24 bytes per row."""

    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, start: int, end: int, line: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lines.append(line)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row_index: int) -> Extent:
        return Extent(self.starts[row_index], self.ends[row_index], self.lines[row_index])


class Unscannable(Exception):
    """Rows cannot be separated from `line` on, or at all. `text` is the reason and the fix."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def scan_jsonl(file: BinaryIO) -> Extents:
    """Return the lines that are not blank. Their content is checked when they are read."""
    extents = Extents()
    position = _skip_bom(file)
    for number, line in enumerate(file, start=1):
        end = position + len(line)
        if not line.isspace():
            extents.add(position, end, number)
        position = end
    return extents


class CsvExtents(NamedTuple):
    """The header record (None in an empty file) and the rows after it."""

    header: Extent | None
    rows: Extents


def scan_csv(file: BinaryIO) -> CsvExtents:
    """Return the records, which may contain quoted line breaks. Blank lines are skipped.

    Raises Unscannable at a quote that is not closed, or that is closed before the end of its cell.
    """
    header: Extent | None = None
    names: list[str] = []
    rows = Extents()
    lines = _Lines(file, _skip_bom(file))
    with cells_of_any_size():
        records = csv.reader(lines, strict=True)
        while True:
            start, line = lines.position, lines.number + 1
            try:
                record = next(records, None)
            except csv.Error as error:
                raise Unscannable(line, otherwise_separated(names) or f"not valid CSV: {error}; {_CSV_FIX}") from error
            if record is None:
                return CsvExtents(header, rows)
            if record and header is None:
                header, names = Extent(start, lines.position, line), record
            elif record:
                rows.add(start, lines.position, line)


def otherwise_separated(names: Sequence[str]) -> str | None:
    """Return the fault of a CSV header that seems to use another separator than a comma, or None."""
    separator = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if separator is None:
        return None
    return f"cells are separated by {json.dumps(separator)}; save the file with commas, or as .jsonl"


_CSV_FIX = "quote cells that contain a comma, a quote or a line break, and double the quotes inside them"


class _Lines:
    """The lines of a file for `csv.reader`, which reads only the lines of the current record."""

    def __init__(self, file: BinaryIO, position: int) -> None:
        self._file = file
        self.position = position
        self.number = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._file)
        self.position += len(line)
        self.number += 1
        return line.decode("latin-1")


_FIELD_LIMIT = threading.Lock()  # protects csv.field_size_limit, a setting of the whole process


@contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Let `csv` read cells of more than 128 KiB, and restore its limit afterwards."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def scan_json(file: BinaryIO) -> Extents:
    """Return the elements of a JSON array. Raises Unscannable if the file is not JSON or not an array."""
    extents = Extents()
    window = _Window(file, _skip_bom(file))
    if window.peek() == "":
        return extents
    if window.peek() != "[":
        text = "must be an array of objects; for one object per line, rename the file to .jsonl"
        raise Unscannable(window.line, text)
    window.take()
    if window.peek() == "]":
        window.take()
    else:
        _scan_elements(window, extents)
    if window.peek() != "":
        raise Unscannable(window.line, "not valid JSON: the file continues after the array; keep one array in the file")
    return extents


def _scan_elements(window: _Window, extents: Extents) -> None:
    while True:
        extents.add(*window.element())
        delimiter = window.take()
        if delimiter == "]":
            return
        if delimiter != ",":
            got = f'"{delimiter}"' if delimiter else "the end of the file"
            text = f'not valid JSON: "," or "]" must follow row {len(extents) - 1}, got {got}'
            raise Unscannable(window.line, f"{text}; {_JSON_FIX}")


_JSON_FIX = "check that line with a JSON formatter"


class _Window:
    """The current part of a JSON file. It grows to contain one element, and drops the elements before it."""

    # Numbers stay text: their values are not needed here, and Python cannot convert very long ones.
    _decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self._text = ""
        self._offset = offset  # of _text[0] in the file
        self._position = 0  # in _text
        self.line = 1

    def peek(self) -> str:
        """Return the next character that is not white space, or "" at the end of the file."""
        while True:
            self._move_to(_space_ends(self._text, self._position))
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._grow():
                return ""

    def take(self) -> str:
        """Return the next character that is not white space, and move past it."""
        character = self.peek()
        self._position += len(character)
        return character

    def element(self) -> Extent:
        """Return the extent of the next value, and move past it."""
        self.peek()
        line = self.line
        end = self._end_of_element()
        extent = Extent(self._offset + self._position, self._offset + end, line)
        self._move_to(end)
        return extent

    def _move_to(self, end: int) -> None:
        self.line += self._text.count("\n", self._position, end)
        self._position = end

    def _end_of_element(self) -> int:
        while True:
            broken: Unscannable | None = None
            try:
                _, end = self._decoder.raw_decode(self._text, self._position)
                if end < len(self._text):  # otherwise a number may continue in the next chunk
                    return end
            except json.JSONDecodeError as error:  # or the window ends inside the element
                line = self.line + self._text.count("\n", self._position, error.pos)
                broken = Unscannable(line, f"not valid JSON: {error.msg}; {_JSON_FIX}")
            except RecursionError as error:
                raise Unscannable(self.line, "nested too deeply to be read; flatten it") from error
            if not self._grow():
                if broken is None:
                    return len(self._text)
                raise broken

    def _grow(self) -> bool:
        """Read at least as much as the window contains, so that a long element is not parsed many times."""
        kept = self._text[self._position :]
        more = self._file.read(max(_CHUNK, len(kept))).decode("latin-1")
        self._offset += self._position
        self._text = kept + more
        self._position = 0
        return bool(more)


def _space_ends(text: str, position: int) -> int:
    space = _JSON_SPACE.match(text, position)
    return space.end() if space else position


def _skip_bom(file: BinaryIO) -> int:
    start = len(_BOM) if file.read(len(_BOM)) == _BOM else 0
    return file.seek(start)
