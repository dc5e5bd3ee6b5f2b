"""The protocol `RowReader`, which each format of datasets has, and the faults of whole files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, BinaryIO, Protocol


class RowReader(Protocol):
    """Reads the records of one file by their position, from any thread. Callers only ask for rows that exist."""

    def __len__(self) -> int: ...

    @property
    def text_cells(self) -> bool:
        """True if the messages column contains chats as JSON text."""
        ...

    @property
    def left_out(self) -> tuple[str, ...]:
        """A sentence on each column without which all rows come."""
        ...

    @property
    def not_finite(self) -> Mapping[str, str]:
        """The columns without which some of the rows came that were read, and the value that is not JSON."""
        ...

    def line(self, row_index: int) -> int:
        """Return the 1-based line on which the row starts."""
        ...

    def record(self, file: BinaryIO, row_index: int) -> dict[str, Any]:
        """Return the row's values, as JSON values under the dataset's own names. Raises BadRow, and Damaged."""
        ...


class Unscannable(Exception):
    """Rows cannot be separated from `line` on, or at all. `text` is the reason and the fix."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class Damaged(Exception):
    """A part of the file with many rows cannot be read, for a reason that no single row has."""
