"""Where the records of a dataset come from: `RowReader`, and `TextReader` for those stored as text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from pytest_osmosis.datasets.columns import BadRow
from pytest_osmosis.datasets.row_offsets import Extent, Extents


class RowReader(Protocol):
    """The records of one file, by absolute position; what is asked for exists. May be asked from any thread."""

    def __len__(self) -> int: ...

    def line(self, row_index: int) -> int:
        """The 1-based line that the row starts on."""
        ...

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """The row's values under the dataset's own names, fit for JSON. Raises BadRow."""
        ...


@dataclass(frozen=True, slots=True)
class TextReader:
    """Records as text: their extents, and what parses one. Nothing of them is kept."""

    extents: Extents
    parse: Callable[[str], dict[str, Any]]

    def __len__(self) -> int:
        return len(self.extents)

    def line(self, row_index: int) -> int:
        """The 1-based line that the row starts on."""
        return self.extents[row_index].line

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """The row as parsed. Raises BadRow."""
        return self.parse(text_at(file, self.extents[row_index]))


def text_at(file: BinaryIO, extent: Extent) -> str:
    """The text of one row. Raises BadRow, with the line, where it is not UTF-8."""
    file.seek(extent.start)
    data = file.read(extent.end - extent.start)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = extent.line + data.count(b"\n", 0, error.start)
        raise BadRow(f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8", line=line) from error
