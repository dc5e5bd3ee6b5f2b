"""Readers of a dataset's records: the protocol `RowReader`, and `TextReader` for text formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple, Protocol

from pytest_osmosis.datasets.columns import BadRow
from pytest_osmosis.datasets.row_offsets import Extent, Extents


class RowReader(Protocol):
    """Reads the records of one file by their position, from any thread. Callers only ask for rows that exist."""

    def __len__(self) -> int: ...

    def line(self, row_index: int) -> int:
        """Return the 1-based line on which the row starts."""
        ...

    @property
    def left_out(self) -> Mapping[str, str]:
        """The columns without which some of the rows came that were read, and the value that is not JSON."""
        ...

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """Return the row's values, as JSON values under the dataset's own names. Raises BadRow, and Damaged."""
        ...


class Damaged(Exception):
    """A part of the file with many rows cannot be read, for a reason that no single row has."""


class Indexed(NamedTuple):
    """The reader of a file's rows. With `text_cells`, the messages column contains chats as JSON text.

    `left_out` says which columns the rows come without, and why.
    """

    reader: RowReader
    text_cells: bool
    left_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TextReader:
    """Reads records from their extents in a text file, and parses them. Records are not kept."""

    extents: Extents
    parse: Callable[[str], dict[str, Any]]

    def __len__(self) -> int:
        return len(self.extents)

    @property
    def left_out(self) -> Mapping[str, str]:
        return {}

    def line(self, row_index: int) -> int:
        return self.extents[row_index].line

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        return self.parse(text_at(file, self.extents[row_index]))


def text_at(file: BinaryIO, extent: Extent) -> str:
    """Return the text of one row. Raises BadRow with the line of the first byte that is not UTF-8."""
    file.seek(extent.start)
    data = file.read(extent.end - extent.start)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = extent.line + data.count(b"\n", 0, error.start)
        raise BadRow(f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line=line) from error
