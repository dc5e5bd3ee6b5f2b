"""What a dataset calls the columns with a meaning: our names, case and outer blanks aside, or as mapped."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.config.tables import ROW_COLUMNS

SOLUTION = "solution_str"
"""The user's own column in which reward functions look for a row's reference solution."""

_ALIASES = {"label": "ground_truth"}


class BadRow(Exception):
    """A row, or a header, that does not fit: one text for each fault; `line` where it is not the row's first."""

    def __init__(self, *faults: str, line: int | None = None) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults
        self.line = line


@dataclass(frozen=True, slots=True, eq=False)
class Columns:
    """The mapping of `[data] columns`: our name -> the dataset's."""

    mapped: Mapping[str, str]

    def titled(self, ours: str) -> str:
        """How a problem names one of our columns: the dataset's name first, where it has its own."""
        theirs = self.mapped.get(ours)
        return f'column "{ours}"' if theirs is None else f'column "{theirs}" ({ours})'

    def canonical(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """The record with our names for the columns that we know. Raises BadRow as `ours` does."""
        return dict(zip(_ours(self, tuple(record)), record.values(), strict=True))

    def ours(self, names: Iterable[str]) -> list[str]:
        """Our name for each column, or its own. Raises BadRow where two columns are the same one."""
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
        meant = _ALIASES.get(own)
        if meant is not None and meant not in folded and meant not in self.mapped:
            return meant
        return own if own in ROW_COLUMNS else name

    def _shadowed(self, name: str, ours: str) -> str:
        return (
            f'column "{name}": [data] columns takes {ours} from "{self.mapped[ours]}"; '
            f"rename this column or drop the mapping"
        )


@functools.lru_cache(maxsize=64)  # most rows of a dataset have the same columns
def _ours(columns: Columns, names: tuple[str, ...]) -> list[str]:
    return columns.ours(names)


def same_column(one: str, other: str) -> str:
    """The fault of two names that mean the same column."""
    if one == other:
        return f'column "{one}" appears more than once; remove or rename one'
    return f'columns "{one}" and "{other}" are the same column; remove or rename one'


def fold(name: str) -> str:
    """A column's name as names are compared: case and outer blanks aside."""
    return name.strip().casefold()
