"""The answers of the embedded model `demo/script`: in each run the cell of a column, or that of another row.

The run alone decides, so a repeated or resumed run gets the same answer, whichever rows are selected.
"""

from __future__ import annotations

from contextlib import suppress
from hashlib import blake2b
from typing import Any

from msgspec import Struct

from pytest_osmosis.datasets.dataset import Dataset
from pytest_osmosis.datasets.rows import BadRow, Row
from pytest_osmosis.errors import DatasetError

NO_OTHER = "I do not know."
"""The wrong answer, if no other row has another answer."""
MOST_READ = 64
"""At most this many rows are read to find another answer than the right one."""


class Script(Struct, frozen=True):
    """The answers of a dataset: of every run, the share `accuracy` gets its row's cell of `column`."""

    column: str
    accuracy: float = 1.0

    def right(self, dataset: Dataset, row: Row) -> Any:
        """Return the row's cell, None without one. The column may be named as in the file, or by our name for it."""
        name = self.column
        if name not in row.record:
            with suppress(BadRow):
                name = dataset.columns.ours([name])[0]
        cell = row.record.get(name)
        return None if cell in ("", [], {}) or (isinstance(cell, str) and not cell.strip()) else cell

    def cell(self, dataset: Dataset, row: Row, key: str) -> Any:
        """Return the cell that a run answers from. `key` is its seed, or else its identity."""
        right = self.right(dataset, row)
        digest = blake2b(f"{key}:{row.row_index}".encode(), digest_size=16).digest()
        if (int.from_bytes(digest[:8], "big") >> 11) / 2**53 < self.accuracy:
            return right
        first, total = int.from_bytes(digest[8:], "big"), len(dataset)
        for step in range(min(total, MOST_READ)):
            with suppress(DatasetError):  # no run of this eval may need that row
                other = self.right(dataset, dataset.row((first + step) % total))
                if other is not None and other != right:
                    return other
        return NO_OTHER
