"""Rows of a Parquet file, read by row group: at most one group is held, whichever row was asked for last.

Values become what JSON holds, as rows do in every other format: dates and times are ISO 8601 text, decimals text, maps
objects. A column that JSON cannot hold (binary, durations) is refused when the file is opened. Parquet has no lines:
a row's `line` is its number from 1, `row_index + 1`. pyarrow, the extra `parquet`, is imported when it is first needed.
"""

from __future__ import annotations

import math
import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from pytest_osmosis.datasets.columns import BadRow
from pytest_osmosis.datasets.row_offsets import Unscannable

_INSTALL = 'Parquet needs pyarrow: pip install "pytest-osmosis[parquet]"'

Convert = Callable[[Any], Any]
"""A value as pyarrow gives it -> the value for JSON. Raises BadRow. None stays None and is never passed in."""


@dataclass(frozen=True, slots=True)
class ParquetFooter:
    """What a file says of itself: its Arrow schema, and the row after each row group."""

    schema: Any
    ends: array[int]

    @property
    def names(self) -> list[str]:
        """The columns."""
        return list(self.schema.names)

    def typed(self, ours: Sequence[str]) -> ParquetRows:
        """The rows; `ours` are our names of the columns. Raises BadRow for columns that JSON cannot hold."""
        converts, faults = {}, []
        for field, own in zip(self.schema, ours, strict=True):
            try:
                convert = _converter(field.type)
                converts[field.name] = _chat(convert) if own == "messages" else convert
            except _NoJson as error:
                faults.append(f'column "{field.name}": {error.type} has no JSON equivalent; {_DROP_IT}')
        if faults:
            raise BadRow(*faults)
        chats = [field.type for field, own in zip(self.schema, ours, strict=True) if own == "messages"]
        return ParquetRows(ParquetReader(self.ends, converts), any(map(_is_text, chats)))


_DROP_IT = "drop the column or store it as text"


class ParquetRows(NamedTuple):
    """The rows, and whether their messages are stored as JSON text."""

    source: ParquetReader
    text_cells: bool


def scan_parquet(file: BinaryIO) -> ParquetFooter:
    """The footer of a Parquet file. Raises Unscannable where it is none, or where pyarrow is not installed."""
    try:
        from pyarrow.lib import ArrowException
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise Unscannable(None, _INSTALL) from error
    try:
        parquet = ParquetFile(file)
        metadata = parquet.metadata
        ends, rows = array("Q"), 0
        for group in range(metadata.num_row_groups):
            rows += metadata.row_group(group).num_rows
            ends.append(rows)
        return ParquetFooter(parquet.schema_arrow, ends)
    except (ArrowException, OSError) as error:
        raise Unscannable(None, f"cannot be read as Parquet: {_one_line(error)}; write the file again") from error


class ParquetReader:
    """The records of one Parquet file, of which it keeps the row group that was asked for last."""

    def __init__(self, ends: array[int], converts: Mapping[str, Convert]) -> None:
        self._ends = ends
        self._converts = converts
        self._lock = threading.Lock()  # protects the group that is held, and keeps two from being read at once
        self._held: int | None = None
        self._group: Any = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def line(self, row_index: int) -> int:
        """The row's number from 1: Parquet has no lines."""
        return row_index + 1

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """The row's values. Raises BadRow where the row group is damaged or a value has no JSON equivalent."""
        values = self._values(file, row_index)
        record, faults = {}, []
        for name, convert in self._converts.items():
            try:
                record[name] = None if values[name] is None else convert(values[name])
            except BadRow as error:
                faults += [f'column "{name}": {fault}' for fault in error.faults]
        if faults:
            raise BadRow(*faults)
        return record

    def _values(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        from pyarrow.lib import ArrowException

        group = bisect_right(self._ends, row_index)
        first = self._ends[group - 1] if group else 0
        try:
            with self._lock:
                rows = self._read(file, group).slice(row_index - first, 1)
            values: dict[str, Any] = rows.to_pylist()[0]
            return values
        except (ArrowException, OSError, ValueError) as error:
            raise BadRow(f"cannot be read: {_one_line(error)}; write the file again") from error

    def _read(self, file: BinaryIO, group: int) -> Any:
        from pyarrow.parquet import ParquetFile

        if self._held != group:
            self._held = self._group = None  # before the next one is read, so that two are never held
            self._group = ParquetFile(file).read_row_group(group)
            self._held = group
        return self._group


class _NoJson(Exception):
    def __init__(self, type_: object) -> None:
        super().__init__(str(type_))
        self.type = type_


def _converter(type_: Any) -> Convert:
    """What turns values of an Arrow type into values for JSON. Raises _NoJson."""
    from pyarrow import types

    if types.is_dictionary(type_):
        return _converter(type_.value_type)
    if _is_text(type_) or types.is_boolean(type_) or types.is_integer(type_) or types.is_null(type_):
        return _as_is
    if types.is_floating(type_):
        return _finite
    if types.is_decimal(type_):
        return str
    if types.is_temporal(type_) and not types.is_duration(type_) and not types.is_interval(type_):
        return _iso
    return _nested(type_)


def _nested(type_: Any) -> Convert:
    from pyarrow import types

    if types.is_map(type_) and _is_text(type_.key_type):
        return _map(_converter(type_.item_type))
    if types.is_struct(type_):
        return _struct({field.name: _converter(field.type) for field in type_})
    if types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_):
        return _list(_converter(type_.value_type))
    raise _NoJson(type_)


def _is_text(type_: Any) -> bool:
    from pyarrow import types

    return bool(types.is_string(type_) or types.is_large_string(type_))


def _as_is(value: Any) -> Any:
    return value


def _finite(value: float) -> float:
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        raise BadRow(f"{shown} is not JSON; use null or a finite number")
    return value


def _iso(value: Any) -> str:
    return str(value.isoformat())


def _list(convert: Convert) -> Convert:
    return lambda items: [None if item is None else convert(item) for item in items]


def _struct(converts: Mapping[str, Convert]) -> Convert:
    return lambda values: {
        name: None if values[name] is None else convert(values[name]) for name, convert in converts.items()
    }


def _map(convert: Convert) -> Convert:
    return lambda pairs: {key: None if value is None else convert(value) for key, value in pairs}


def _chat(convert: Convert) -> Convert:
    """As `convert`, without the keys that a message lacks: a struct holds each key of any of them, as null."""
    return lambda messages: _without_nulls(convert(messages))


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(one) for key, one in value.items() if one is not None or key == "content"}
    return [_without_nulls(one) for one in value] if isinstance(value, list) else value


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()).rstrip(".")
