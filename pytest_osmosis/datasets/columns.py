"""The names of columns: ours, in any case and with surrounding blanks, or the dataset's own, as mapped.

Also the faults of rows, headers and whole files.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.config.tables import ROW_COLUMNS

_ALIASES = {"label": "ground_truth"}


class BadRow(Exception):
    """A row or a header with faults, one text each. `line` is set if it differs from the row's first line."""

    def __init__(self, *faults: str, line: int | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.line = line


class Unscannable(Exception):
    """Rows cannot be separated from `line` on, or at all. `text` is the reason and the fix."""

    def __init__(self, line: int | None, text: str) -> None:
        super().__init__(text)
        self.line = line
        self.text = text


class Damaged(Exception):
    """A part of the file with many rows cannot be read, for a reason that no single row has."""


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The mapping of `[data] columns` from our names to the dataset's."""

    mapped: Mapping[str, str]

    def titled(self, ours: str) -> str:
        """Return one of our columns as problems name it: with the dataset's name first, if they differ."""
        theirs = self.mapped.get(ours)
        return f'column "{ours}"' if theirs is None else f'column "{theirs}" ({ours})'

    def canonical(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Return the record with our names for the columns that have a meaning. Raises BadRow like `ours`."""
        return dict(zip(_ours(self, tuple(record)), record.values(), strict=True))

    def ours(self, names: Iterable[str]) -> list[str]:
        """Return our name for each column, or its own. Raises BadRow if two names mean the same column."""
        names = list(names)
        folded = {fold(name) for name in names}
        by_folded = {fold(theirs): ours for ours, theirs in self.mapped.items()}
        taken: dict[str, str] = {}
        faults = []
        for name in names:
            ours = by_folded.get(fold(name)) or self._unmapped(name, folded)
            if ours in self.mapped and fold(name) not in by_folded:
                faults.append(self._shadowed(name, ours))
            elif ours in taken:
                faults.append(same_column(taken[ours], name))
            taken.setdefault(ours, name)
        if faults:
            raise BadRow(*faults)
        return list(taken)

    def _unmapped(self, name: str, folded: set[str]) -> str:
        own = fold(name)
        alias = _ALIASES.get(own)
        if alias is not None and alias not in folded and alias not in self.mapped:
            return alias
        return own if own in ROW_COLUMNS else name

    def _shadowed(self, name: str, ours: str) -> str:
        return (
            f'column "{name}": [data] columns takes {ours} from "{self.mapped[ours]}"; '
            f"rename this column or remove the mapping"
        )


@functools.lru_cache(maxsize=64)  # most rows of a dataset have the same columns
def _ours(columns: Columns, names: tuple[str, ...]) -> list[str]:
    return columns.ours(names)


def same_column(first: str, second: str) -> str:
    """Return the fault of two names that mean the same column."""
    if first == second:
        return f'column "{first}" appears more than once; remove or rename one'
    return f'columns "{first}" and "{second}" are the same column; remove or rename one'


def fold(name: str) -> str:
    """Return a column's name in the form that is compared: in lower case, without surrounding blanks."""
    return name.strip().casefold()
