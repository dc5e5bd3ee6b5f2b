"""A dataset on disk: an index of its rows, which are read one at a time.

The content of rows is not kept. A file that changes after it was indexed raises a `DatasetError`.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from io import BufferedReader
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from pytest_osmosis.config.tables import EMPTY
from pytest_osmosis.datasets.columns import BadRow, Columns, Damaged, Unscannable, fold
from pytest_osmosis.datasets.human_scores import NO_HUMAN_SCORE, without_human_score
from pytest_osmosis.datasets.location import check_suffix
from pytest_osmosis.datasets.parquet import ParquetReader, scan_parquet
from pytest_osmosis.datasets.parsing import shown_json
from pytest_osmosis.datasets.row_warnings import notes_of
from pytest_osmosis.datasets.rows import Content, Row, make_row
from pytest_osmosis.datasets.text_rows import TextRows, scan_csv, scan_json, scan_jsonl
from pytest_osmosis.errors import DatasetError, Problem
from pytest_osmosis.files.formats import HEAD_BYTES, foreign_format, is_parquet
from pytest_osmosis.files.reading import FileFault, open_file
from pytest_osmosis.text.suggest import suggestion

_MOST_PROBLEMS = 20
NOTHING_ASKED = (
    'has metadata and no prompt, and the agent "chat" sends a prompt; write a user_prompt, or name an agent that reads '
    "the metadata"
)


RowReader = TextRows | ParquetReader
Stamp = tuple[int, int]
"""The size of a file, and the time of its last change in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Dataset:
    """The rows of one file. Its methods may be called from any thread.

    The rows of a `recorded` dataset hold conversations that are only scored. `human` is the column with scores by
    humans, if there is one. With `is_generated` nobody wrote the file. `system_prompt` is that of all rows, or None.
    """

    path: Path
    display: str
    columns: Columns
    source: RowReader
    stamp: Stamp
    recorded: bool = False
    human: str | None = None
    is_generated: bool = False
    system_prompt: str | None = None

    def __len__(self) -> int:
        return len(self.source)

    def row(self, row_index: int) -> Row:
        """Return the row at an absolute position.

        Raises DatasetError with all faults of the row, and IndexError if the dataset has no such row.
        """
        with self.open() as file:
            return self.read(file, row_index)

    def line(self, row_index: int) -> int:
        """Return the 1-based line on which the row starts. For Parquet, it is the number of the row."""
        if not 0 <= row_index < len(self):
            raise IndexError(f"row {row_index} of {len(self)}")
        return self.source.line(row_index)

    def where(self, row_index: int, line: int) -> str:
        """Return the place of a row in words: "data/rows.jsonl:12", "row 11 of environment gsm8k"."""
        return f"row {row_index} of {self.display}" if self.is_generated else f"{self.display}:{line}"

    def digest(self) -> str:
        """Return the SHA-256 of the file, in hex."""
        with self.open() as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def open(self) -> BufferedReader:
        """Open the file to `read` several rows. Raises DatasetError if it was deleted or has changed."""
        file = _open(self.path, self.display)
        if _stamp(file) != self.stamp:
            file.close()
            raise DatasetError([Problem(self.display, "has changed since it was first read; start the eval again")])
        return file

    def read(self, file: BufferedReader, row_index: int) -> Row:
        """Return the same as `row`, from an open file."""
        line = self.line(row_index)
        try:
            raw, human = self.source.record(file, row_index), NO_HUMAN_SCORE
            if self.human is not None:
                raw, human = without_human_score(raw, self.human)
            text_cells = self.source.text_cells
            row = make_row(row_index, line, raw, self.columns, text_cells=text_cells, recorded=self.recorded)
            row = replace(row, human=human) if human.has_column else row
            return row if self.system_prompt is None else row.with_system_prompt(self.system_prompt)
        except Damaged as error:
            raise DamagedError([Problem(self.display, str(error))]) from error
        except BadRow as error:
            where = f"{self.display}:{error.line or line}"
            raise DatasetError(Problem(where, f"row {row_index}: {fault}") for fault in error.faults) from error


def open_dataset(
    path: Path,
    columns: Mapping[str, str] = EMPTY,
    display: str | None = None,
    *,
    recorded: bool = False,
    human: str | None = None,
) -> Dataset:
    """Index a .jsonl, .json, .csv or .parquet file. `columns` maps our names of columns to the dataset's.

    The rows of a `recorded` dataset hold conversations, or answers, that are only scored. `human` is the column with
    scores by humans, which rows come without.

    Text is indexed in one pass, and Parquet by its footer. `display` is the file's name in problems. Raises
    DatasetError if the file cannot be read or has no rows, if its rows cannot be separated, or if a CSV header or a
    Parquet schema has no prompt or has a column twice. The content of rows is not checked.
    """
    display = display or str(path)
    check_suffix(path, display)
    mapping = _columns(columns)
    with _open(path, display) as file:
        stamp = _stamp(file)  # before the pass, to detect changes during it
        try:
            _check_format(file, path.suffix.lower())
            source = _scanned(file, path.suffix.lower(), mapping, recorded)
        except Unscannable as error:
            raise DatasetError([Problem(_where(display, error.line), error.text)]) from error
        except BadRow as error:
            where, what = _where(display, error.line), "schema" if error.line is None else "header"
            raise DatasetError(Problem(where, f"{what}: {fault}") for fault in error.faults) from error
    if not len(source):
        raise DatasetError([Problem(display, "has no rows; it needs at least one")])
    return Dataset(path, display, mapping, source, stamp, recorded, human)


def _where(display: str, line: int | None) -> str:
    return display if line is None else f"{display}:{line}"


def _check_format(file: BufferedReader, suffix: str) -> None:
    """Raise Unscannable for a file whose first bytes are those of another format."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    foreign = foreign_format(head)
    if foreign is not None and not (suffix == ".parquet" and is_parquet(head)):
        raise Unscannable(None, foreign)


class DamagedError(DatasetError):
    """Many rows cannot be read, all for the same reason."""


class Checked(NamedTuple):
    """The digests, contents and human scores of rows by index, and notes: columns left out, `row_warnings.notes_of`."""

    notes: tuple[str, ...]
    digests: Mapping[int, str]
    contents: Mapping[int, Content]
    human_scores: Mapping[int, float] = MappingProxyType({})


def check_rows(
    dataset: Dataset,
    selected: Iterable[int],
    *,
    must_ask: bool = False,
    metadata: Sequence[str] = (),
    fault_of: Callable[[Row], str | None] = lambda row: None,
) -> Checked:
    """Read and check all selected rows. Raises DatasetError with the first 20 problems and the number of the others.

    With `must_ask`, a row that has only metadata is a problem: the built-in agent sends its prompt and nothing else.
    `metadata` are the columns that a judge sees: each must be in one of the rows.
    `fault_of` is called with each valid row in turn, and returns what is wrong with it, or None.
    """
    listed: list[Problem] = []
    n_problems = 0
    digests: dict[int, str] = {}
    contents: dict[int, Content] = {}
    human_scores: dict[int, float] = {}
    seen: dict[str, None] = {}  # the columns of all rows, in order
    has_human_scores = False

    def valid_rows(file: BufferedReader) -> Iterator[tuple[Row, Content]]:
        nonlocal n_problems, has_human_scores
        for row_index in selected:
            try:
                row = dataset.read(file, row_index)
                fault = NOTHING_ASKED if must_ask and not row.has_prompt else fault_of(row)
                if fault is not None:
                    raise DatasetError([Problem(dataset.where(row_index, row.line), f"row {row_index}: {fault}")])
            except DamagedError as error:
                n_problems += len(error.problems)
                listed.extend(error.problems)
                return
            except DatasetError as error:
                n_problems += len(error.problems)
                listed.extend(error.problems[: _MOST_PROBLEMS - len(listed)])
            else:
                digests[row_index], contents[row_index] = row.digest, row.content
                if row.human.score is not None:
                    human_scores[row_index] = row.human.score
                has_human_scores = has_human_scores or row.human.has_column
                seen.update(dict.fromkeys(row.record))
                yield row, contents[row_index]

    with dataset.open() as file:
        notes = notes_of(valid_rows(file))
    if n_problems > len(listed):
        listed.append(Problem(dataset.display, f"... and {n_problems - len(listed)} more"))
    if not n_problems:
        fix = "no selected row has it; correct or remove it in [data] columns"
        absent = (dataset.columns.titled(ours) for ours in dataset.columns.mapped if ours not in seen)
        listed = [Problem(dataset.display, f"{title}: {fix}") for title in absent]
        seen_by_judge = (column for column in metadata if fold(column) != fold(dataset.human or ""))
        named = [("judge", "metadata", column) for column in seen_by_judge if column not in seen]
        if dataset.human is not None and not has_human_scores:
            named.append(("scoring", "calibrate", dataset.human))
        if seen:
            listed += [Problem(dataset.display, _no_column(*each, list(seen))) for each in named]
    needed: dict[str | None, str] = dict.fromkeys(metadata, "[judge] metadata")
    needed[dataset.human] = "[scoring] calibrate"
    left_out = [*dataset.source.left_out]
    for name, why in dataset.source.not_finite.items():
        text = f'column "{name}": {why}'
        if name not in needed:
            left_out.append(f"{text}, so rows with it come without the column")
        elif not n_problems:
            text = f"{text}, and {needed[name]} needs it; use null or a finite number"
            listed.append(Problem(dataset.display, text))
    if listed:
        raise DatasetError(listed)
    return Checked((*left_out, *notes), digests, contents, human_scores)


def _no_column(table: str, key: str, column: str, others: Sequence[str]) -> str:
    named = ", ".join(map(shown_json, others))
    missing = f"no selected row has a column {shown_json(column)}{suggestion(column, others)}"
    return f"[{table}] {key}: {missing} (columns: {named})"


def _columns(mapped: Mapping[str, str]) -> Columns:
    folded = Counter(fold(theirs) for theirs in mapped.values())
    duplicates = [theirs for theirs, times in folded.items() if times > 1]
    if duplicates:
        text = "is mapped to more than one column; keep one of them"
        raise DatasetError(Problem("[data] columns", f'"{theirs}" {text}') for theirs in duplicates)
    return Columns(mapped)


def _scanned(file: BufferedReader, suffix: str, columns: Columns, recorded: bool) -> RowReader:
    """Return a reader of the rows. Raises BadRow for a header, or a schema, with faults."""
    if suffix == ".jsonl":
        return scan_jsonl(file)
    if suffix == ".json":
        return scan_json(file)
    scan = scan_parquet if suffix == ".parquet" else scan_csv
    return scan(file, columns, recorded=recorded)


def _open(path: Path, display: str) -> BufferedReader:
    try:
        return open_file(path)
    except FileFault as fault:
        raise DatasetError([Problem(display, str(fault))]) from fault


def _stamp(file: BufferedReader) -> Stamp:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns
