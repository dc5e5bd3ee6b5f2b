"""Rows of files, each read and parsed when it is asked for.

One pass over a text file finds the place of each row. It decodes bytes as Latin-1, one character per byte, so that
places in the text are places in the file. All structure of JSON and CSV is ASCII. A row is decoded as UTF-8 only when
it is read. During the pass, the whole text of a JSON array is in memory; of other files, one row.

A Parquet file is read by row group; one group is in memory, that of the last row read. Its values become JSON values:
dates and times become ISO 8601 text, decimals text, and maps objects. A column that has no JSON equivalent (binary,
durations) is left out, and not even read, unless it is one that an eval needs. A row lacks a column where it has NaN or
an infinite number, or is an error if an eval needs the column: code must not take another value for it. Parquet has no
lines, so a row's `line` is `row_index + 1`. pyarrow, the extra `parquet`, is imported on first use.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import threading
import zlib
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Set
from contextlib import suppress
from functools import partial
from io import BytesIO
from itertools import accumulate
from typing import Any, BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from pytest_osmosis.config.tables import ROW_COLUMNS
from pytest_osmosis.datasets.rows import (
    BadRow,
    Columns,
    Damaged,
    Unscannable,
    cells_of_any_size,
    check_header,
    otherwise_separated,
    parse_cells,
    parse_csv,
    parse_object,
)
from pytest_osmosis.text.safe import one_line

_BOM = b"\xef\xbb\xbf"
_JSON_SPACE = re.compile(r"[ \t\n\r]*")
_JSON_FIX = "check that line with a JSON formatter"
_MOST_NOTES = 20
"""The number of records that may stand above the header of a CSV, in search of it."""
_CSV_FIX = "quote cells that contain a comma, a quote or a line break, and double the quotes inside them"


class TextRows(Struct, frozen=True):
    """The bytes of each row, from `starts` to `ends`, and the 1-based line on which it starts: 24 bytes per row.

    `parse` returns the record of a row's text. `unpacked` is the content of a file that was compressed.
    """

    parse: Callable[[str], dict[str, Any]] = parse_object
    text_cells: bool = False
    unpacked: bytes | None = None
    left_out: tuple[str, ...] = ()
    not_finite: Mapping[str, str] = {}
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
        start, end = self.starts[row_index], self.ends[row_index]
        if self.unpacked is None:
            file.seek(start)
            data = file.read(end - start)
        else:
            data = self.unpacked[start:end]
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


def scan_gzip(file: BinaryIO) -> TextRows:
    """Return the same of a file that gzip compressed, with its content. Raises Unscannable if it is not one."""
    try:
        content = gzip.decompress(file.read())
    except (OSError, EOFError, zlib.error) as error:
        raise Unscannable(None, f"cannot be unpacked: {error}; compress the file again with gzip") from error
    return replace(scan_jsonl(BytesIO(content)), unpacked=content)


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
        try:
            end = _decoder.raw_decode(text, at)[1]
        except json.JSONDecodeError as error:
            raise Unscannable(error.lineno, f"not valid JSON: {error.msg}; {_JSON_FIX}") from error
        except RecursionError as error:
            raise Unscannable(line, "nested too deeply to be read; flatten it") from error
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
    if not names:
        return rows
    try:
        names = parse_csv(header.text(file, 0))  # in UTF-8
        check_header(names, columns, recorded=recorded)
    except BadRow as error:
        line = error.line or header.line(0)
        if below := _header_below(file, rows, columns, recorded):
            raise BadRow(f"line {below} looks like the header; remove the lines above it", line=line) from error
        raise BadRow(*error.faults, line=line) from error
    return replace(rows, parse=partial(parse_cells, names))


def _header_below(file: BinaryIO, rows: TextRows, columns: Columns, recorded: bool) -> int | None:
    """Return the line of the first record that would do as a header, below a title or notes; None if there is none."""
    for row_index in range(min(len(rows), _MOST_NOTES)):
        with suppress(BadRow):
            check_header(parse_csv(rows.text(file, row_index)), columns, recorded=recorded)
            return rows.line(row_index)
    return None


def _skip_bom(file: BinaryIO) -> int:
    return file.seek(len(_BOM) if file.read(len(_BOM)) == _BOM else 0)


Convert = Callable[[Any], Any]
"""A function that converts a value of pyarrow to a JSON value. Raises _NotFinite."""
_FINITE = "use null or a finite number"


def scan_parquet(file: BinaryIO, columns: Columns, *, recorded: bool) -> ParquetReader:
    """Return a reader of the rows of a Parquet file.

    Raises Unscannable if it is not one, or if pyarrow is not installed, and BadRow for a schema without what an eval
    needs, or that has it in a type without a JSON equivalent.
    """
    try:
        from pyarrow.lib import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise Unscannable(None, 'Parquet needs pyarrow: pip install "pytest-osmosis[parquet]"') from error
    try:
        parquet = ParquetFile(file)
        groups = (parquet.metadata.row_group(group) for group in range(parquet.metadata.num_row_groups))
        ends = array("Q", accumulate(group.num_rows for group in groups))
        schema = parquet.schema_arrow
    except (ArrowException, OSError) as error:
        text = f"cannot be read as Parquet: {one_line(str(error)).rstrip('.')}; write the file again"
        raise Unscannable(None, text) from error
    check_header(schema.names, columns, recorded=recorded)
    return _reader(dict(zip(columns.ours(schema.names), schema, strict=True)), ends)


def _reader(fields: Mapping[str, Any], ends: array[int]) -> ParquetReader:
    """Return the reader of fields of an Arrow schema, by our names of them."""
    converts, left_out, faults = {}, [], []
    for name, column in fields.items():
        try:
            convert = _converter(column.type)
            converts[column.name] = _without_nulls_of(convert) if name == "messages" else convert
        except _NoJson as error:
            text = f'column "{column.name}": {error} has no JSON equivalent'
            if name in ROW_COLUMNS:
                faults.append(f"{text}; store it as text")
            else:
                left_out.append(f"{text}, so the rows come without it")
    if faults:
        raise BadRow(*faults)
    needed = {column.name for name, column in fields.items() if name in ROW_COLUMNS}
    text_cells = "messages" in fields and _is_text(fields["messages"].type)
    return ParquetReader(ends, converts, needed, text_cells, tuple(left_out))


class ParquetReader(Struct, eq=False):
    """Reads the records of one Parquet file, and keeps the row group of the last record."""

    ends: array[int]
    converts: Mapping[str, Convert]
    needed: Set[str]
    text_cells: bool
    left_out: tuple[str, ...]
    not_finite: dict[str, str] = {}
    _lock: threading.Lock = field(default_factory=threading.Lock)  # protects the group, and prevents two reads at once
    _group_index: int | None = None
    _group: Any = None

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    def line(self, row_index: int) -> int:
        return row_index + 1

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """Return the row's values. Raises Damaged for its row group, and BadRow if a needed value is not finite."""
        values = self._values(file, row_index)
        record, faults = {}, []
        for name, convert in self.converts.items():
            try:
                record[name] = convert(values[name])
            except _NotFinite as error:
                if name in self.needed:
                    faults.append(f'column "{name}": {error}; {_FINITE}')
                else:
                    self.not_finite.setdefault(name, str(error))
        if faults:
            raise BadRow(*faults)
        return record

    def _values(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        from pyarrow.lib import ArrowException
        from pyarrow.parquet import ParquetFile

        group = bisect_right(self.ends, row_index)
        first = self.ends[group - 1] if group else 0
        try:
            with self._lock:
                if self._group_index != group:
                    self._group_index = self._group = None  # first, so that two groups are never in memory
                    columns = list(self.converts) if self.left_out else None
                    self._group = ParquetFile(file).read_row_group(group, columns=columns)
                    self._group_index = group
                one = self._group.slice(row_index - first, 1)
            return dict(one.to_pylist()[0])
        except (ArrowException, OSError, ValueError) as error:
            last = self.ends[group] - 1
            rows = f"row {first}" if first == last else f"rows {first} to {last}"
            raise Damaged(f"{rows} cannot be read: {one_line(str(error)).rstrip('.')}; write the file again") from error


class _NotFinite(Exception):
    """A number that JSON does not have."""


class _NoJson(Exception):
    """An Arrow type without a JSON equivalent."""


def _converter(type_: Any) -> Convert:
    """Return the function that converts values of an Arrow type to JSON values. Raises _NoJson."""
    convert = _plain(type_)
    return lambda value: None if value is None else convert(value)


def _plain(type_: Any) -> Convert:
    """Return the same for values that are not None."""
    from pyarrow import types

    if types.is_dictionary(type_):
        return _converter(type_.value_type)
    if _is_text(type_) or types.is_boolean(type_) or types.is_integer(type_) or types.is_null(type_):
        return lambda value: value
    if types.is_floating(type_):
        return _finite
    if types.is_decimal(type_):
        return str
    if types.is_temporal(type_) and not types.is_duration(type_) and not types.is_interval(type_):
        return lambda value: value.isoformat()
    if types.is_map(type_) and _is_text(type_.key_type):
        convert = _converter(type_.item_type)
        return lambda pairs: {key: convert(value) for key, value in pairs}
    if types.is_struct(type_):
        converts = {field.name: _converter(field.type) for field in type_}
        return lambda values: {name: convert(values[name]) for name, convert in converts.items()}
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        convert = _converter(type_.value_type)
        return lambda items: [convert(item) for item in items]
    raise _NoJson(type_)


def _is_text(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise _NotFinite(f"{shown} is not JSON")
    return value


def _without_nulls_of(convert: Convert) -> Convert:
    """Return `convert` for messages, without the nulls of keys that only other messages have."""

    def without_nulls(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: without_nulls(item) for key, item in value.items() if item is not None or key == "content"}
        return [without_nulls(item) for item in value] if isinstance(value, list) else value

    return lambda messages: without_nulls(convert(messages))
