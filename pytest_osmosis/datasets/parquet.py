"""Rows of a Parquet file, read by row group. At most one group is in memory: that of the last row read.

Values become JSON values, as in the other formats: dates and times become ISO 8601 text, decimals text, and maps
objects. A column that has no JSON equivalent (binary, durations) is left out, and not even read, unless it is one that
an eval needs. A row comes without a column in which it has NaN or an infinite number, unless that has a meaning: code
that looks for it must not take another value for it.
Parquet has no lines, so a row's `line` is `row_index + 1`. pyarrow, the extra `parquet`, is imported on first use.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, BinaryIO

from pytest_osmosis.config.tables import ROW_COLUMNS
from pytest_osmosis.datasets.columns import BadRow, Columns, Damaged, Unscannable
from pytest_osmosis.datasets.rows import check_header
from pytest_osmosis.text.safe import one_line

Convert = Callable[[Any], Any]
"""A function that converts a value of pyarrow, never None, to a JSON value. Raises _NotFinite."""
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
            converts[column.name] = _chat(convert) if name == "messages" else convert
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


@dataclass(slots=True, eq=False)
class ParquetReader:
    """Reads the records of one Parquet file, and keeps the row group of the last record."""

    ends: array[int]
    converts: Mapping[str, Convert]
    needed: Set[str]
    text_cells: bool
    left_out: tuple[str, ...]
    not_finite: dict[str, str] = field(default_factory=dict)
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
                record[name] = None if values[name] is None else convert(values[name])
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

        group = bisect_right(self.ends, row_index)
        first = self.ends[group - 1] if group else 0
        try:
            with self._lock:
                one = self._read(file, group).slice(row_index - first, 1)
            return dict(one.to_pylist()[0])
        except (ArrowException, OSError, ValueError) as error:
            last = self.ends[group] - 1
            rows = f"row {first}" if first == last else f"rows {first} to {last}"
            raise Damaged(f"{rows} cannot be read: {one_line(str(error)).rstrip('.')}; write the file again") from error

    def _read(self, file: BinaryIO, group: int) -> Any:
        from pyarrow.parquet import ParquetFile

        if self._group_index != group:
            self._group_index = self._group = None  # first, so that two groups are never in memory
            columns = list(self.converts) if self.left_out else None
            self._group = ParquetFile(file).read_row_group(group, columns=columns)
            self._group_index = group
        return self._group


class _NotFinite(Exception):
    """A number that JSON does not have."""


class _NoJson(Exception):
    """An Arrow type without a JSON equivalent."""


def _converter(type_: Any) -> Convert:
    """Return the function that converts values of an Arrow type to JSON values. Raises _NoJson."""
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
    return _nested(type_)


def _nested(type_: Any) -> Convert:
    from pyarrow import types

    if types.is_map(type_) and _is_text(type_.key_type):
        return _map(_converter(type_.item_type))
    if types.is_struct(type_):
        return _struct({field.name: _converter(field.type) for field in type_})
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        convert = _converter(type_.value_type)
        return lambda items: [None if item is None else convert(item) for item in items]
    raise _NoJson(type_)


def _is_text(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_))


def _finite(value: float) -> float:
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise _NotFinite(f"{shown} is not JSON")
    return value


def _struct(converts: Mapping[str, Convert]) -> Convert:
    return lambda values: {
        name: None if values[name] is None else convert(values[name]) for name, convert in converts.items()
    }


def _map(convert: Convert) -> Convert:
    return lambda pairs: {key: None if value is None else convert(value) for key, value in pairs}


def _chat(convert: Convert) -> Convert:
    """Return `convert` for messages, without the nulls of keys that only other messages have."""
    return lambda messages: _without_nulls(convert(messages))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None or key == "content"}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value
