"""A dataset on disk: an index of where its rows lie, and rows read from it one at a time.

Nothing of a row is kept. A file that changes after it was indexed is refused, not misread.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

from pytest_osmosis.config.tables import EMPTY
from pytest_osmosis.datasets.columns import BadRow, Columns, fold, same_column
from pytest_osmosis.datasets.extents import Extent, Extents, Unscannable, scan_csv, scan_json, scan_jsonl
from pytest_osmosis.datasets.location import need_readable
from pytest_osmosis.datasets.parsing import parse_cells, parse_csv, parse_object
from pytest_osmosis.datasets.rows import Row, make_row, missing_prompt
from pytest_osmosis.errors import DatasetError, Problem

_MOST_PROBLEMS = 20


class _Stamp(NamedTuple):
    """What tells one state of a file from another."""

    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class Dataset:
    """The rows of one file. Its methods may be called from any thread."""

    path: Path
    display: str
    columns: Columns
    extents: Extents
    parse: Callable[[str], dict[str, Any]]
    text_cells: bool
    stamp: _Stamp

    def __len__(self) -> int:
        return len(self.extents)

    def row(self, row_index: int) -> Row:
        """The row at that absolute position.

        Raises DatasetError with everything that is wrong in it, IndexError where the dataset has no such row.
        """
        with self.open() as file:
            return self.read(file, row_index)

    def line(self, row_index: int) -> int:
        """The 1-based line that the row starts on."""
        return self._extent(row_index).line

    def digest(self) -> str:
        """The SHA-256 of the file, in hex."""
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def open(self) -> BufferedReader:
        """The file, to `read` several rows from. Raises DatasetError where it is gone or has changed."""
        file = _open(self.path, self.display)
        if _stamp(file) != self.stamp:
            file.close()
            raise DatasetError([Problem(self.display, "has changed since it was first read; start the run again")])
        return file

    def read(self, file: BufferedReader, row_index: int) -> Row:
        """As `row`, from a file that is open already."""
        extent = self._extent(row_index)
        try:
            text = _text(file, extent)
            raw = self.parse(text)
            return make_row(row_index, extent.line, raw, self.columns, text_cells=self.text_cells)
        except _NotUtf8 as error:
            raise DatasetError([Problem(f"{self.display}:{error.line}", f"row {row_index}: {error}")]) from error
        except BadRow as error:
            where = f"{self.display}:{extent.line}"
            raise DatasetError(Problem(where, f"row {row_index}: {fault}") for fault in error.faults) from error

    def _extent(self, row_index: int) -> Extent:
        if not 0 <= row_index < len(self):
            raise IndexError(f"row {row_index} of {len(self)}")
        return self.extents[row_index]


def open_dataset(path: Path, columns: Mapping[str, str] = EMPTY, display: str | None = None) -> Dataset:
    """The dataset in a .jsonl, .json or .csv file, indexed in one pass; `columns` maps our names to its own.

    `display` is what problems call the file. Raises DatasetError where it cannot be read or holds no rows,
    where its rows cannot be told apart, and where a CSV header has no prompt or a column twice. The rows
    themselves are not checked.
    """
    display = display or str(path)
    need_readable(path, display)
    known = _columns(columns)
    with _open(path, display) as file:
        stamp = _stamp(file)  # before the pass, so that a change during it shows too
        try:
            extents, parse = _indexed(file, path.suffix.lower(), known, display)
        except Unscannable as error:
            raise DatasetError([Problem(f"{display}:{error.line}", error.text)]) from error
    if not len(extents):
        raise DatasetError([Problem(display, "holds no rows; it needs at least one")])
    text_cells = path.suffix.lower() == ".csv"
    return Dataset(path, display, known, extents, parse, text_cells, stamp)


def check_rows(dataset: Dataset, selected: Iterable[int]) -> None:
    """Reads every selected row. Raises DatasetError with all problems, of which the first 20 are listed."""
    listed: list[Problem] = []
    n_problems = 0
    unseen = set(dataset.columns.mapped)
    with dataset.open() as file:
        for row_index in selected:
            try:
                unseen -= dataset.read(file, row_index).record.keys()
            except DatasetError as error:
                n_problems += len(error.problems)
                listed += error.problems[: _MOST_PROBLEMS - len(listed)]
    if n_problems > len(listed):
        listed.append(Problem(dataset.display, f"... and {n_problems - len(listed)} more"))
    if not n_problems:
        listed = [_never_there(dataset, ours) for ours in dataset.columns.mapped if ours in unseen]
    if listed:
        raise DatasetError(listed)


def _never_there(dataset: Dataset, ours: str) -> Problem:
    what = f"{dataset.columns.titled(ours)}: no selected row has it"
    return Problem(dataset.display, f"{what}; correct the name in [data] columns or drop it there")


def _columns(mapped: Mapping[str, str]) -> Columns:
    folded = Counter(fold(theirs) for theirs in mapped.values())
    twice = [theirs for theirs, times in folded.items() if times > 1]
    if twice:
        text = "is mapped to more than one of our columns; keep one of them"
        raise DatasetError(Problem("[data] columns", f'"{theirs}" {text}') for theirs in twice)
    return Columns(mapped)


class _Indexed(NamedTuple):
    extents: Extents
    parse: Callable[[str], dict[str, Any]]


def _indexed(file: BufferedReader, suffix: str, columns: Columns, display: str) -> _Indexed:
    if suffix == ".jsonl":
        return _Indexed(scan_jsonl(file), parse_object)
    if suffix == ".json":
        return _Indexed(scan_json(file), parse_object)
    header, rows = scan_csv(file)
    names = _header(file, header, columns, display) if header else []
    return _Indexed(rows, partial(parse_cells, names))


def _header(file: BufferedReader, extent: Extent, columns: Columns, display: str) -> list[str]:
    try:
        names = parse_csv(_text(file, extent))
        _check_header(names, columns)
    except _NotUtf8 as error:
        raise DatasetError([Problem(f"{display}:{error.line}", f"header: {error}")]) from error
    except BadRow as error:
        where = f"{display}:{extent.line}"
        raise DatasetError(Problem(where, f"header: {fault}") for fault in error.faults) from error
    return names


def _check_header(names: list[str], columns: Columns) -> None:
    first: dict[str, str] = {}
    pairs = [(first.setdefault(fold(name), name), name) for name in names]
    twice = [same_column(earlier, name) for earlier, name in pairs if earlier is not name]
    if twice:
        raise BadRow(*twice)
    ours = columns.ours(names)
    if "user_prompt" not in ours and "messages" not in ours:
        raise BadRow(missing_prompt(columns, names))


class _NotUtf8(Exception):
    def __init__(self, line: int, byte: int) -> None:
        super().__init__(f"byte 0x{byte:02x} is not UTF-8; save the file as UTF-8")
        self.line = line


def _text(file: BufferedReader, extent: Extent) -> str:
    file.seek(extent.start)
    data = file.read(extent.end - extent.start)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = extent.line + data.count(b"\n", 0, error.start)
        raise _NotUtf8(line, data[error.start]) from error


def _open(path: Path, display: str) -> BufferedReader:
    try:
        return path.open("rb")
    except OSError as error:
        raise DatasetError([Problem(display, f"cannot be read: {error.strerror}")]) from error


def _stamp(file: BufferedReader) -> _Stamp:
    status = os.fstat(file.fileno())
    return _Stamp(status.st_size, status.st_mtime_ns)
