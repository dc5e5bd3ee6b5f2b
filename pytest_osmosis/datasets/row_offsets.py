"""Where each row lies in a file: found in one pass that holds no more than one row and one chunk at a time.

The passes read bytes as Latin-1, one character a byte, so that positions in text are positions in the file;
what is structure in JSON and CSV is ASCII, and rows are decoded as UTF-8 only when they are read. A file that
breaks its format so that rows cannot be told apart raises `Unscannable`.
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
    """One row's bytes, `start` to `end`, and the 1-based line that it starts on."""

    start: int
    end: int
    line: int


@dataclass(frozen=True, slots=True)
class Extents:
    """The extents of all rows, at 24 bytes a row."""

    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, start: int, end: int, line: int) -> None:
        """Append the next row's."""
        self.starts.append(start)
        self.ends.append(end)
        self.lines.append(line)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, row_index: int) -> Extent:
        return Extent(self.starts[row_index], self.ends[row_index], self.lines[row_index])


class Unscannable(Exception):
    """The rows cannot be told apart from `line` on (None: at all); `text` says why and what to do."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


def scan_jsonl(file: BinaryIO) -> Extents:
    """The lines that are not blank. Never fails: whether a line is JSON is seen when it is read."""
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
    """The records, quoted line breaks and all; blank lines are skipped.

    Raises Unscannable at a quote that is never closed, or closed before the end of its cell.
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
    """The fault of a CSV header in one cell that looks like several, None where it does not."""
    found = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if found is None:
        return None
    return f"cells are separated by {json.dumps(found)}; save the file with commas, or as .jsonl"


_CSV_FIX = "quote cells that contain a comma, a quote or a line break, and double the quotes inside them"


class _Lines:
    """The lines of a file for `csv.reader`, which takes no more of them than the record at hand needs."""

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


_FIELD_LIMIT = threading.Lock()  # protects csv.field_size_limit, which the csv module holds for the whole process


@contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Within it `csv` takes cells beyond its 128 KiB; the limit that others may rely on is put back."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def scan_json(file: BinaryIO) -> Extents:
    """The elements of the array that the file holds. Raises Unscannable where it is no array or not JSON."""
    extents = Extents()
    window = _Window(file, _skip_bom(file))
    if window.peek() == "":
        return extents
    if window.peek() != "[":
        raise Unscannable(
            window.line, "must be an array of objects; for one object per line, rename the file to .jsonl"
        )
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
            text = f'not valid JSON: "," or "]" must follow after row {len(extents) - 1}, got {got}'
            raise Unscannable(window.line, f"{text}; {_JSON_FIX}")


_JSON_FIX = "check that line with a JSON formatter"


class _Window:
    """The part of a JSON file that is looked at: grows to hold one element, forgets what it has passed."""

    # Numbers stay text: their values are not wanted here, and none is then too long to be converted.
    _decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)

    def __init__(self, file: BinaryIO, offset: int) -> None:
        self._file = file
        self._text = ""
        self._offset = offset  # of _text[0] in the file
        self._position = 0  # in _text
        self.line = 1

    def peek(self) -> str:
        """The next character that is not space, "" at the end of the file."""
        while True:
            self._pass(_space_ends(self._text, self._position))
            if self._position < len(self._text):
                return self._text[self._position]
            if not self._grow():
                return ""

    def take(self) -> str:
        """The next character that is not space, passed."""
        character = self.peek()
        self._position += len(character)
        return character

    def element(self) -> Extent:
        """The next value, passed."""
        self.peek()
        line = self.line
        end = self._end_of_element()
        extent = Extent(self._offset + self._position, self._offset + end, line)
        self._pass(end)
        return extent

    def _pass(self, end: int) -> None:
        self.line += self._text.count("\n", self._position, end)
        self._position = end

    def _end_of_element(self) -> int:
        while True:
            broken: Unscannable | None = None
            try:
                _, end = self._decoder.raw_decode(self._text, self._position)
                if end < len(self._text):  # else a number may go on in the next chunk
                    return end
            except json.JSONDecodeError as error:  # or cut off by the end of the window
                line = self.line + self._text.count("\n", self._position, error.pos)
                broken = Unscannable(line, f"not valid JSON: {error.msg}; {_JSON_FIX}")
            except RecursionError as error:
                raise Unscannable(self.line, "nested too deeply to be read; flatten it") from error
            if not self._grow():
                if broken is None:
                    return len(self._text)
                raise broken

    def _grow(self) -> bool:
        """Reads on, at least as much again as is held, so that a long element is not parsed over and over."""
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
