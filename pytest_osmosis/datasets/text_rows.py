"""Rows of text files: each is read and parsed when it is asked for, at the place that one pass over the file found.

The pass decodes bytes as Latin-1, one character per byte, so that places in the text are places in the file. All
structure of JSON and CSV is ASCII. A row is decoded as UTF-8 only when it is read. Of a JSON array the whole text is in
memory during the pass; of other files, one row.
"""

from __future__ import annotations

import csv
import json
import re
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, BinaryIO

from pytest_osmosis.datasets.columns import BadRow, Columns, Unscannable
from pytest_osmosis.datasets.parsing import cells_of_any_size, otherwise_separated, parse_cells, parse_csv, parse_object
from pytest_osmosis.datasets.rows import check_header

_BOM = b"\xef\xbb\xbf"
_JSON_SPACE = re.compile(r"[ \t\n\r]*")
_JSON_FIX = "check that line with a JSON formatter"
_CSV_FIX = "quote cells that contain a comma, a quote or a line break, and double the quotes inside them"


@dataclass(frozen=True, slots=True)
class TextRows:
    """The bytes of each row, from `starts` to `ends`, and the 1-based line on which it starts: 24 bytes per row.

    `parse` returns the record of a row's text.
    """

    parse: Callable[[str], dict[str, Any]] = parse_object
    text_cells: bool = False
    left_out: tuple[str, ...] = ()
    not_finite: Mapping[str, str] = field(default_factory=dict)
    starts: array[int] = field(default_factory=lambda: array("Q"))
    ends: array[int] = field(default_factory=lambda: array("Q"))
    lines: array[int] = field(default_factory=lambda: array("Q"))

    def add(self, start: int, end: int, line: int) -> None:
        self.starts.append(start)
        self.ends.append(end)
        self.lines.append(line)

    def __len__(self) -> int:
        return len(self.starts)

    def line(self, row_index: int) -> int:
        return self.lines[row_index]

    def text(self, file: BinaryIO, row_index: int) -> str:
        """Return the text of one row. Raises BadRow with the line of the first byte that is not UTF-8."""
        file.seek(self.starts[row_index])
        data = file.read(self.ends[row_index] - self.starts[row_index])
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            line = self.line(row_index) + data.count(b"\n", 0, error.start)
            raise BadRow(f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line=line) from error

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        return self.parse(self.text(file, row_index))


def scan_jsonl(file: BinaryIO) -> TextRows:
    """Return the lines that are not blank. Their content is checked when they are read."""
    rows = TextRows()
    position = _skip_bom(file)
    for number, line in enumerate(file, start=1):
        end = position + len(line)
        if not line.isspace():
            rows.add(position, end, number)
        position = end
    return rows


def scan_json(file: BinaryIO) -> TextRows:
    """Return the elements of a JSON array. Raises Unscannable if the file is not JSON or not an array."""
    rows = TextRows()
    offset = _skip_bom(file)
    text = file.read().decode("latin-1")
    at = _after_space(text, 0)
    if at == len(text):
        return rows
    if text[at] != "[":
        raise _unscannable(text, at, "must be an array of objects; for one object per line, rename the file to .jsonl")
    at = _after_space(text, at + 1)
    line, counted = 1, 0
    while len(rows) or text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        end = _end_of_element(text, at, line)
        rows.add(offset + at, offset + end, line)
        at = _after_space(text, end)
        if text[at : at + 1] != ",":
            break
        at = _after_space(text, at + 1)
    if text[at : at + 1] != "]":
        got = f'"{text[at]}"' if at < len(text) else "the end of the file"
        fault = f'not valid JSON: "," or "]" must follow row {len(rows) - 1}, got {got}; {_JSON_FIX}'
        raise _unscannable(text, at, fault)
    at = _after_space(text, at + 1)
    if at < len(text):
        raise _unscannable(text, at, "not valid JSON: the file continues after the array; keep one array in the file")
    return rows


# Numbers stay text: their values are not needed here, and Python cannot convert very long ones.
_decoder = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)


def _end_of_element(text: str, at: int, line: int) -> int:
    try:
        return _decoder.raw_decode(text, at)[1]
    except json.JSONDecodeError as error:
        raise Unscannable(error.lineno, f"not valid JSON: {error.msg}; {_JSON_FIX}") from error
    except RecursionError as error:
        raise Unscannable(line, "nested too deeply to be read; flatten it") from error


def _after_space(text: str, at: int) -> int:
    space = _JSON_SPACE.match(text, at)
    return space.end() if space else at


def _unscannable(text: str, at: int, fault: str) -> Unscannable:
    return Unscannable(1 + text.count("\n", 0, at), fault)


def scan_csv(file: BinaryIO, columns: Columns, *, recorded: bool) -> TextRows:
    """Return the records after the header, which may contain quoted line breaks. Blank lines are skipped.

    Raises Unscannable at a quote that is not closed, or that is closed before the end of its cell, and BadRow with its
    line for a header with faults.
    """
    header, rows = TextRows(), TextRows(text_cells=True)
    names: list[str] = []
    _skip_bom(file)
    with cells_of_any_size():
        records = csv.reader((line.decode("latin-1") for line in file), strict=True)
        while True:
            start, line = file.tell(), records.line_num + 1
            try:
                record = next(records, None)
            except csv.Error as error:
                raise Unscannable(line, otherwise_separated(names) or f"not valid CSV: {error}; {_CSV_FIX}") from error
            if record is None:
                break
            if record:
                (rows if names else header).add(start, file.tell(), line)
                names = names or record
    return replace(rows, parse=partial(parse_cells, _names(file, header, columns, recorded))) if names else rows


def _names(file: BinaryIO, header: TextRows, columns: Columns, recorded: bool) -> list[str]:
    try:
        names = parse_csv(header.text(file, 0))
        check_header(names, columns, recorded=recorded)
    except BadRow as error:
        raise BadRow(*error.faults, line=error.line or header.line(0)) from error
    return names


def _skip_bom(file: BinaryIO) -> int:
    return file.seek(len(_BOM) if file.read(len(_BOM)) == _BOM else 0)
