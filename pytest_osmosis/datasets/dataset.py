"""A dataset on disk: its file, an index of its rows, which are read one at a time, and the rows that an eval uses.

The file is a path, or the name of one file under `datasets/` or `data/`. After resolving symlinks, it must be inside
the workspace; only an absolute `path` can be anywhere. The content of rows is not kept. A file that changes after it
was indexed raises a `DatasetError`. Samples of rows depend only on their seed.
"""

from __future__ import annotations

import hashlib
import os
import random
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BufferedReader, BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple, TypeAlias, cast

from msgspec import Struct

from pytest_osmosis import seams
from pytest_osmosis.config.document import is_folder
from pytest_osmosis.config.eval_kinds import EMPTY, Ranges, merged
from pytest_osmosis.config.tables import DATASET_SUFFIXES, RowSelection
from pytest_osmosis.datasets.readers import (
    ParquetReader,
    TextRows,
    scan_csv,
    scan_gzip,
    scan_json,
    scan_jsonl,
    scan_parquet,
)
from pytest_osmosis.datasets.rows import (
    BadRow,
    Columns,
    Content,
    Damaged,
    Row,
    Template,
    Unscannable,
    fold,
    make_row,
    notes_of,
    shown_json,
)
from pytest_osmosis.errors import DatasetError, Problem
from pytest_osmosis.files.reading import (
    HEAD_BYTES,
    PARQUET,
    FileFault,
    fault_of,
    foreign_format,
    open_file,
    something_at,
)
from pytest_osmosis.text.names import listed, shown, suggestion
from pytest_osmosis.text.numbers import plural

FOLDERS = ("datasets", "data")
_MOST_LISTED = 10


def locate(workspace: Path, name: str) -> Path:
    """Return the file that a name means: one inside the workspace, or that with this stem in `datasets/` or `data/`.

    Raises DatasetError if there is no such file or more than one, or if it is outside the workspace.
    """
    candidates = _candidates(workspace, name)
    if not candidates:
        folders = [workspace / folder for folder in FOLDERS if (workspace / folder).is_dir()]
        files = sorted(p for folder in folders for p in folder.iterdir() if _suffix(p))
        available = f"available: {listed((_short(workspace, path) for path in files), _MOST_LISTED)}"
        if not files:
            available = f"there is no dataset in {' or '.join(f'{folder.name}/' for folder in folders)}"
        if not folders:
            available = "the workspace has neither datasets/ nor data/"
        looked = f"looked for {' and '.join(f'{folder}/{name}.*' for folder in FOLDERS)} in {workspace}"
        raise DatasetError.at(f'dataset "{name}"', f"not found; {looked}; {available}")
    file, where = candidates[0], _short(workspace, candidates[0])
    if len(candidates) > 1:
        paths = " and ".join(_short(workspace, candidate) for candidate in candidates)
        fix = f'set [data] path = "{where}" or remove the others'
        raise DatasetError.at(f'dataset "{name}"', f"matches {len(candidates)} files, {paths}; {fix}")
    # a loop of links is nowhere, and an error when it is opened
    if fault_of(file) is None and not file.resolve().is_relative_to(workspace.resolve()):
        fix = f"copy it in, or use --osmosis-dataset={shlex.quote(shown(file))}"
        raise DatasetError.at(where, f"lies outside the workspace {workspace} (symlinks resolved); {fix}")
    return file


def _candidates(workspace: Path, name: str) -> list[Path]:
    """Return the files that a name can mean, or else what is there in their places, which can be no dataset."""
    as_path = workspace / name
    if _suffix(as_path) and something_at(as_path):
        return [as_path]
    places = (workspace / folder / (name + suffix) for folder in FOLDERS for suffix in DATASET_SUFFIXES)
    present = [place for place in places if something_at(place)]
    return [place for place in present if fault_of(place) is None] or present


def _suffix(path: Path) -> str:
    """Return the suffix of a dataset, which may have two parts, or "" for another file."""
    return next((suffix for suffix in DATASET_SUFFIXES if path.name.lower().endswith(suffix)), "")


def _short(workspace: Path, path: Path) -> str:
    return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else str(path)


_MOST_PROBLEMS = 20
NOTHING_ASKED = (
    'has metadata and no prompt, and the agent "chat" sends a prompt; write a user_prompt, or name an agent that reads '
    "the metadata"
)


if TYPE_CHECKING:
    from pytest_osmosis.seams import TrajectoryRows

RowReader: TypeAlias = "TextRows | ParquetReader | TrajectoryRows"
Stamp = tuple[int, int]
"""The size of a file, and the time of its last change in nanoseconds."""


class Dataset(Struct, frozen=True):
    """The rows of one file, or of the `files` in a folder. Its methods may be called from any thread.

    The rows of a `recorded` dataset hold conversations that are only scored. With `is_generated` nobody
    wrote the file. `system_prompt` is that of all rows, or None.
    """

    path: Path
    display: str
    columns: Columns
    source: RowReader
    stamp: Stamp
    recorded: bool = False
    is_generated: bool = False
    system_prompt: str | None = None
    files: Sequence[str] = ()

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
        if self.files:
            return f"{self.display}/{self.files[row_index]}"
        return f"row {row_index} of {self.display}" if self.is_generated else f"{self.display}:{line}"

    def digest(self) -> str:
        """Return the SHA-256 of the file, in hex. That of a folder is made of its files' names and digests."""
        if not self.files:
            with self.open() as file:
                return hashlib.file_digest(cast(BufferedReader, file), "sha256").hexdigest()
        whole = hashlib.sha256()
        for name in self.files:
            with _open(self.path / name, f"{self.display}/{name}") as file:
                whole.update(f"{name}\0{hashlib.file_digest(file, 'sha256').hexdigest()}\n".encode())
        return whole.hexdigest()

    def open(self) -> BinaryIO:
        """Open the file to `read` several rows. Raises DatasetError if it was deleted or has changed.

        Those of a folder are opened one by one, as they are read.
        """
        if self.files:
            return BytesIO()
        file = _open(self.path, self.display)
        if _stamp(file) != self.stamp:
            file.close()
            raise DatasetError.at(self.display, "has changed since it was first read; start the eval again")
        return file

    def read(self, file: BinaryIO, row_index: int) -> Row:
        """Return the same as `row`, from an open file."""
        line = self.line(row_index)
        try:
            raw, text_cells = self.source.record(file, row_index), self.source.text_cells
            row = make_row(row_index, line, raw, self.columns, text_cells=text_cells, recorded=self.recorded)
            return row if self.system_prompt is None else row.with_system_prompt(self.system_prompt)
        except Damaged as error:
            raise DamagedError.at(self.display, str(error)) from error
        except BadRow as error:
            where = self.where(row_index, line) if self.files else f"{self.display}:{error.line or line}"
            raise DatasetError(Problem(where, f"row {row_index}: {fault}") for fault in error.faults) from error


def open_dataset(
    path: Path,
    columns: Mapping[str, str] = EMPTY,
    display: str | None = None,
    *,
    recorded: bool = False,
) -> Dataset:
    """Index a .jsonl, .jsonl.gz, .json, .csv or .parquet file, or a folder of trajectories if they are `recorded`.

    `columns` maps our names of columns to the dataset's, and `user_prompt` perhaps to a template.

    The rows of a `recorded` dataset hold conversations, or answers, that are only scored.

    Text is indexed in one pass, and Parquet by its footer. `display` is the file's name in problems. Raises
    DatasetError if the file cannot be read or has no rows, if its rows cannot be separated, or if a CSV header or a
    Parquet schema has no prompt or has a column twice. The content of rows is not checked.
    """
    display, suffix = display or str(path), _suffix(path)
    if recorded and is_folder(path):
        rows = seams.trajectory_rows(path, display)
        return Dataset(path, display, _columns(columns), rows, (0, 0), recorded, files=rows.files)
    if not suffix:
        valid = f"{', '.join(DATASET_SUFFIXES[:-1])} or {DATASET_SUFFIXES[-1]}"
        got = f'"{path.suffix.lower()}"' if path.suffix else "none"
        raise DatasetError.at(display, f"the suffix must be {valid}, got {got}")
    mapping = _columns(columns)
    with _open(path, display) as file:
        stamp = _stamp(file)  # before the pass, to detect changes during it
        try:
            source = _scanned(file, suffix, mapping, recorded)
        except Unscannable as error:
            raise DatasetError.at(_where(display, error.line), error.text) from error
        except BadRow as error:
            where, what = _where(display, error.line), "schema" if error.line is None else "header"
            raise DatasetError(Problem(where, f"{what}: {fault}") for fault in error.faults) from error
    if not len(source):
        raise DatasetError.at(display, "has no rows; it needs at least one")
    return Dataset(path, display, mapping, source, stamp, recorded)


def _where(display: str, line: int | None) -> str:
    return display if line is None else f"{display}:{line}"


class DamagedError(DatasetError):
    """Many rows cannot be read, all for the same reason."""


class Checked(NamedTuple):
    """The digests and contents of rows by index, and notes: columns left out, `row_warnings.notes_of`."""

    notes: tuple[str, ...]
    digests: Mapping[int, str]
    contents: Mapping[int, Content]


def check_rows(
    dataset: Dataset,
    selected: Iterable[int],
    *,
    must_ask: bool = False,
    metadata: Sequence[str] = (),
    compared: Sequence[str] = (),
    fault_of: Callable[[Row], str | None] = lambda row: None,
) -> Checked:
    """Read and check all selected rows. Raises DatasetError with the first 20 problems and the number of the others.

    With `must_ask`, a row that has only metadata is a problem: the built-in agent sends its prompt and nothing else.
    `metadata` are the columns that a judge sees: each must be in one of the rows. `compared` are checks that compare
    with the ground truth, which one of the rows must have then.
    `fault_of` is called with each valid row in turn, and returns what is wrong with it, or None.
    """
    problems: list[Problem] = []
    n_problems = 0
    digests: dict[int, str] = {}
    contents: dict[int, Content] = {}
    seen: dict[str, None] = {}  # the columns of all rows, in order
    has_truth = False

    def valid_rows(file: BinaryIO) -> Iterator[tuple[Row, Content]]:
        nonlocal n_problems, has_truth
        for row_index in selected:
            try:
                row = dataset.read(file, row_index)
                fault = NOTHING_ASKED if must_ask and not row.has_prompt else fault_of(row)
                if fault is not None:
                    raise DatasetError.at(dataset.where(row_index, row.line), f"row {row_index}: {fault}")
            except DatasetError as error:
                is_damaged = isinstance(error, DamagedError)
                n_problems += len(error.problems)
                problems.extend(error.problems[: None if is_damaged else _MOST_PROBLEMS - len(problems)])
                if is_damaged:
                    return
            else:
                digests[row_index], contents[row_index] = row.digests
                seen.update(dict.fromkeys(row.record))
                has_truth = has_truth or row.ground_truth not in (None, "")
                yield row, contents[row_index]

    with dataset.open() as file:
        notes = notes_of(valid_rows(file))
    if n_problems > len(problems):
        problems.append(Problem(dataset.display, f"... and {n_problems - len(problems)} more"))
    if not n_problems:
        problems = list(_column_problems(dataset, list(seen), metadata, () if has_truth else compared))
    if problems:
        raise DatasetError(problems)
    not_finite = dataset.source.not_finite.items()
    left_out = (f'column "{name}": {why}, so rows with it come without the column' for name, why in not_finite)
    return Checked((*dataset.source.left_out, *left_out, *notes), digests, contents)


def _column_problems(
    dataset: Dataset, seen: Sequence[str], metadata: Iterable[str], compared: Sequence[str]
) -> Iterator[Problem]:
    """Yield the columns that a config needs and no selected row has, or not all rows with a number that JSON has."""
    there = f"(columns: {listed(map(shown_json, seen), _MOST_PROBLEMS)})"
    for ours, theirs in dataset.columns.mapped.items():
        if ours not in seen:
            fix = f"no selected row has it{suggestion(theirs, seen)} {there}; correct or remove it in [data] columns"
            yield Problem(dataset.display, f"{dataset.columns.titled(ours)}: {fix}")
    if compared and ("ground_truth" in seen or "ground_truth" not in dataset.columns.mapped):
        fix = 'name it in [data] columns = {ground_truth = "..."}, or with --osmosis-set=data.columns.ground_truth=...'
        needed = f"no selected row has one, and {compared[0]} compares with it {there}"
        yield Problem(dataset.display, f'column "ground_truth": {needed}; {fix}')
    for column in metadata if seen else ():
        if column not in seen:
            missing = f"no selected row has a column {shown_json(column)}{suggestion(column, seen)} {there}"
            yield Problem(dataset.display, f"[judge] metadata: {missing}")
    for column, why in dataset.source.not_finite.items():
        if column in metadata:
            text = f'column "{column}": {why}, and [judge] metadata needs it; use null or a finite number'
            yield Problem(dataset.display, text)


def _columns(mapped: Mapping[str, str]) -> Columns:
    template = mapped.get("user_prompt", "")
    if "{{" not in template and "{%" not in template:
        return Columns(_distinct(mapped))
    others = {ours: theirs for ours, theirs in mapped.items() if ours != "user_prompt"}
    try:
        return Columns(_distinct(others), Template.of(template))
    except BadRow as error:
        raise DatasetError.at("[data] user_prompt", str(error)) from error


def _distinct(mapped: Mapping[str, str]) -> Mapping[str, str]:
    folded = Counter(fold(theirs) for theirs in mapped.values())
    duplicates = [theirs for theirs, times in folded.items() if times > 1]
    if duplicates:
        text = "is mapped to more than one column; keep one of them"
        raise DatasetError(Problem("[data] columns", f'"{theirs}" {text}') for theirs in duplicates)
    return mapped


def _scanned(file: BufferedReader, suffix: str, columns: Columns, recorded: bool) -> RowReader:
    """Return a reader of the rows. Raises Unscannable, and BadRow for a header, or a schema, with faults."""
    head = file.read(HEAD_BYTES)
    file.seek(0)
    foreign = foreign_format(head)
    if suffix == ".jsonl.gz":
        return scan_gzip(file)
    if foreign is not None and not (suffix == ".parquet" and head.startswith(PARQUET)):
        raise Unscannable(None, foreign)
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
        raise DatasetError.at(display, str(fault)) from fault


def _stamp(file: BufferedReader) -> Stamp:
    status = os.fstat(file.fileno())
    return status.st_size, status.st_mtime_ns


SAMPLE = "sample "
"""Begins the description of a sample."""


class Selected(Struct, frozen=True):
    """The selected rows: their ranges, their number, and a description like "first 100 of 1,000"."""

    ranges: Ranges
    count: int
    text: str

    def __iter__(self) -> Iterator[int]:
        for first, last in self.ranges:
            yield from range(first, last + 1)


def select(total: int, selection: RowSelection, seed: int) -> Selected:
    """Return the rows that `selection` selects of `total` rows: its `rows`, or else offset and limit, or else a sample.

    The sample is 10% of all rows, rounded up, drawn with `seed`. A limit beyond the end selects the remaining rows.
    Raises DatasetError if `rows` or `offset` is beyond the end.

    >>> select(1000, RowSelection(offset=10, limit=10), seed=0)
    Selected(ranges=((10, 19),), count=10, text='rows 10 to 19 of 1,000')
    >>> select(1000, RowSelection(), seed=0).text
    'sample 100 of 1,000 rows (10% by default)'
    """
    whole = Selected(((0, total - 1),), total, f"all {total:,}")
    if selection.rows == "all":
        return whole
    if selection.rows is not None:
        if beyond := [(first, last) for first, last in selection.rows if last >= total]:
            raise DatasetError(Problem("[data] rows", _beyond(_span(*pair), total)) for pair in beyond)
        ranges = merged(selection.rows)
        count = sum(last - first + 1 for first, last in ranges)
        return Selected(ranges, count, f"{plural(count, 'row')} of {total:,}")
    if selection.offset is not None or selection.limit is not None:
        offset = selection.offset or 0
        if offset >= total:
            raise DatasetError.at("[data] offset", _beyond(f"{offset}", total))
        limit = total if selection.limit in (None, "all") else int(selection.limit)
        last = min(offset + limit, total) - 1
        count = last - offset + 1
        rows = f"{'row' if count == 1 else 'rows'} {_span(offset, last)}"
        text = f"{f'first {count:,}' if offset == 0 else rows} of {total:,}"
        return whole if count == total else Selected(((offset, last),), count, text)
    if total == 1:
        return whole
    count = -(-total // 10)
    drawn = random.Random(seed).sample(range(total), count)
    why = ["10% by default", *(["rounded up"] if total % 10 else []), *([f"seed {seed}"] if seed else [])]
    text = f"{SAMPLE}{count:,} of {total:,} rows ({', '.join(why)})"
    return Selected(merged((row, row) for row in drawn), count, text)


def _span(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"


def _beyond(got: str, total: int) -> str:
    return f"must be within the dataset's {plural(total, 'row')} ({_span(0, total - 1)}), got {got}"
