"""The cells of one row: parsed from its text, and named by their columns. Faults are raised as `BadRow`.

Names of columns are ours, in any case and with surrounding blanks, or the dataset's own, as mapped. Text is strict JSON
(no NaN, no infinity, no number that is too large for a float, no key twice in one object), or a CSV record.
"""

from __future__ import annotations

import csv
import functools
import json
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pytest_osmosis.config.tables import ROW_COLUMNS
from pytest_osmosis.files.strict_json import WITHOUT_REPEATS, JsonFault
from pytest_osmosis.text.numbers import plural


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
                takes = f'[data] columns takes {ours} from "{self.mapped[ours]}"'
                faults.append(f'column "{name}": {takes}; rename this column or remove the mapping')
            elif ours in taken:
                faults.append(same_column(taken[ours], name))
            taken.setdefault(ours, name)
        if faults:
            raise BadRow(*faults)
        return list(taken)

    def _unmapped(self, name: str, folded: set[str]) -> str:
        own = fold(name)
        if own == "label" and "ground_truth" not in folded and "ground_truth" not in self.mapped:
            return "ground_truth"
        return own if own in ROW_COLUMNS else name


@functools.lru_cache(maxsize=64)  # most rows of a dataset have the same columns
def ours_of(columns: Columns, names: tuple[str, ...]) -> list[str]:
    """Return the same as `columns.ours`."""
    return columns.ours(names)


def same_column(first: str, second: str) -> str:
    """Return the fault of two names that mean the same column."""
    if first == second:
        return f'column "{first}" appears more than once; remove or rename one'
    return f'columns "{first}" and "{second}" are the same column; remove or rename one'


def fold(name: str) -> str:
    """Return a column's name in the form that is compared: in lower case, without surrounding blanks."""
    return name.strip().casefold()


def parse_json(text: str) -> Any:
    """Return the value of a JSON text."""
    try:
        return WITHOUT_REPEATS.decode(text)
    except JsonFault as fault:
        raise BadRow(f"{fault}; {fault.fix}") from fault
    except json.JSONDecodeError as error:
        text = f"not valid JSON at character {error.pos + 1}: {error.msg}; expected one complete JSON value"
        raise BadRow(text) from error
    except RecursionError as error:
        raise BadRow("nested too deeply to be read; flatten it") from error
    except ValueError as error:  # an integer with more digits than Python converts
        raise BadRow(f"not a usable number: {error}") from error


def parse_object(text: str) -> dict[str, Any]:
    """Return the record of a JSON row."""
    record = parse_json(text)
    if not isinstance(record, dict):
        raise BadRow(f'must be an object like {{"user_prompt": "..."}}, got {shown_json(record)}')
    return record


def parse_cells(header: Sequence[str], text: str) -> dict[str, Any]:
    """Return the record of a CSV row. All values are strings."""
    cells = parse_csv(text)
    if len(cells) != len(header):
        text = f"must have {plural(len(header), 'cell')} like the header, got {plural(len(cells), 'cell')}"
        raise BadRow(f"{text}; quote cells that contain a comma or a line break")
    return dict(zip(header, cells, strict=True))


def parse_csv(text: str) -> list[str]:
    """Return the cells of one CSV record."""
    with cells_of_any_size():
        return next(csv.reader([text], strict=True))


_FIELD_LIMIT = threading.Lock()  # protects csv.field_size_limit, a setting of the whole process


@contextmanager
def cells_of_any_size() -> Iterator[None]:
    """Let `csv` read cells of more than 128 KiB, and restore its limit afterwards."""
    with _FIELD_LIMIT:
        before = csv.field_size_limit(2**31 - 1)
        try:
            yield
        finally:
            csv.field_size_limit(before)


def otherwise_separated(names: Sequence[str]) -> str | None:
    """Return the fault of a CSV header that seems to use another separator than a comma, or None."""
    separator = next((mark for mark in ";\t|" if len(names) == 1 and mark in names[0]), None)
    if separator is None:
        return None
    return f"cells are separated by {json.dumps(separator)}; save the file with commas, or as .jsonl"


def shown_json(value: object) -> str:
    """Return a value for messages: as JSON, on one line, cut to 60 characters."""
    text = json.dumps(value, ensure_ascii=False)
    if not text.isprintable():
        text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
