"""Tables of runs as JSON Lines, CSV and Parquet.

Values are written as they are. A spreadsheet takes a text that begins with =, +, - or @ for a formula; guards against
that change the text, which would be wrong for every other program.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.results import files
from pytest_osmosis.results.export_table import Column, ExportTable, Kind, Line
from pytest_osmosis.text.outlet import ascii_json
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import encodable

if TYPE_CHECKING:
    import pyarrow

TableFormat = Literal["jsonl", "csv", "parquet"]
ROWS_AT_ONCE = 500
"""The rows of a row group of Parquet, which are in memory together."""
BYTES_AT_ONCE = 1 << 24
"""A row group ends earlier if its texts have this many characters."""


def table_text(table: ExportTable, format: Literal["jsonl", "csv"], redaction: Redaction) -> Iterator[str]:
    """Yield the table as text, line by line. Raises `JournalError`."""
    return _jsonl(table.lines(redaction)) if format == "jsonl" else _csv(table.columns, table.lines(redaction))


def write_table(table: ExportTable, format: TableFormat, redaction: Redaction, path: Path) -> None:
    """Write the table to a file, whole or not at all.

    Raises `OSError` if it cannot be written, and `OsmosisError` for Parquet without pyarrow.
    """
    if format == "parquet":
        with files.replacing(path) as scratch:
            _write_parquet(scratch, table.columns, table.lines(redaction))
    else:
        files.write(path, table_text(table, format, redaction))


def _jsonl(lines: Iterable[Line]) -> Iterator[str]:
    return (f"{ascii_json(line)}\n" for line in lines)


class _Echo:
    """A file that returns what is written to it."""

    def write(self, text: str) -> str:
        return text


def _csv(columns: Sequence[Column], lines: Iterable[Line]) -> Iterator[str]:
    writer = csv.writer(_Echo(), lineterminator="\n")
    yield writer.writerow([column.name for column in columns])
    for line in lines:
        yield writer.writerow([_cell(column.value(line)) for column in columns])


def _cell(value: Any) -> Any:
    """Return a value as CSV has it: booleans as in JSON, nothing for None, numbers and texts as they are."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return encodable(value, None) if isinstance(value, str) else value


def _write_parquet(path: Path, columns: Sequence[Column], lines: Iterable[Line]) -> None:
    arrow = require_pyarrow()
    from pyarrow import parquet

    types = {
        "text": arrow.string(),
        "any": arrow.string(),
        "integer": arrow.int64(),
        "number": arrow.float64(),
        "flag": arrow.bool_(),
    }
    schema = arrow.schema([arrow.field(column.name, types[column.kind]) for column in columns])
    with parquet.ParquetWriter(path, schema) as writer:
        for group in _groups([_typed(column.kind, column.value(line)) for column in columns] for line in lines):
            arrays = [
                arrow.array(values, field.type) for values, field in zip(zip(*group, strict=True), schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


def _typed(kind: Kind, value: Any) -> Any:
    if isinstance(value, str):
        return encodable(value, None)
    return float(value) if kind == "number" and value is not None else value


def _groups(rows: Iterable[list[Any]]) -> Iterator[list[list[Any]]]:
    """Yield the rows in groups, none of which is too large for memory."""
    group: list[list[Any]] = []
    size = 0
    for row in rows:
        group.append(row)
        size += sum(len(value) for value in row if isinstance(value, str))
        if len(group) >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield group
            group, size = [], 0
    if group:
        yield group


def require_pyarrow() -> pyarrow:
    """Return the library for Parquet. Raises `OsmosisError` if it is not installed."""
    try:
        import pyarrow
    except ImportError as error:
        raise OsmosisError(
            f"--format=parquet needs pyarrow, which cannot be imported ({error}): "
            'pip install "pytest-osmosis[parquet]", or take jsonl or csv'
        ) from None
    return pyarrow
