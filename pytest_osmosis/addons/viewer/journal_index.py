"""An eval run's journal and dataset, as far as its pages need them; memory holds neither.

`JournalIndex` folds a journal, also as it grows, and notes where conversations are, to cut the lines of one out of the
file. A torn last line waits until it is whole. The journal of another eval run at the same path is read from its
beginning. A dataset may have been changed since. Then it says nothing about the runs, and is left aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from pytest_osmosis.datasets import Dataset, open_dataset
from pytest_osmosis.errors import JournalError, OsmosisError
from pytest_osmosis.record.find_run import StoredEvalRun
from pytest_osmosis.record.journal import EventReader, events_from
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.stored_results import Replayed
from pytest_osmosis.text.chat_messages import text_of
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.recorded import SOLUTION
from pytest_osmosis.text.safe import escaped

EXCERPT_CHARS = 120
_LOOKED_AT_CHARS = 1000


class JournalIndex:
    """The index of the journal at a path. `read` takes what is new; before that it is empty.

    `found` is the fold so far, `prompts` are the excerpts of the prompts of rows, by index.
    """

    def __init__(self, journal: Path) -> None:
        self.journal = journal
        self._file: tuple[int, int] | None = None
        self._clear()

    def _clear(self) -> None:
        self.found = Replayed()
        self._end, self._n_lines = 0, 0
        self.prompts: dict[int, str] = {}

    def read(self) -> None:
        """Read the new lines. Raises `JournalError` for a line that is not valid.

        There is no journal until the user's code is loaded.
        """
        try:
            status = self.journal.stat()
        except OSError:
            return
        file = status.st_dev, status.st_ino
        if self._file is not None and (file != self._file or status.st_size < self._end):
            self._clear()
        self._file = file
        if status.st_size == self._end:
            return
        for event, end in events_from(self.journal, self._end, self._n_lines + 1):
            self._end, self._n_lines = end, self._n_lines + 1
            for each in self.found.apply(event):
                if each["ev"] == "rollout" and each["row"] not in self.prompts and (prompt := excerpt_of(each)):
                    self.prompts[each["row"]] = prompt

    def conversation(self, run: RunId) -> bytes | None:
        """Return the JSON of a `Conversation`, with its events as the journal has them, None before it has ended.

        They are those of the attempt and the scores that count. Raises `JournalError` if the file has no such lines.
        """
        record = self.found.ledger.records.get(run)
        if record is None or not record.rolled:
            return None
        try:
            with EventReader(self.journal) as reader:
                rollout = reader.json_at(self.found.positions["rollout", run, record.attempt])
                return b'{"rollout":%b,"scores":[%b]}' % (
                    rollout,
                    b",".join(map(reader.json_at, self.found.score_places(record))),
                )
        except JournalError as error:
            raise JournalError(
                f"{self.journal}: the file was changed while it was read; open the eval run again"
            ) from error


def excerpt_of(rollout: Mapping[str, Any]) -> str:
    """Return the beginning of the last message of a rollout's prompt in one line, "" without one."""
    messages, n_prompt = rollout.get("messages", ()), rollout.get("n_prompt", 0)
    asked = (each for each in messages if isinstance(each, Mapping) and each.get("role") == "user")
    prompt = messages[:n_prompt] or [*islice(asked, 1)]
    return excerpt(prompt[-1].get("content")) if prompt and isinstance(prompt[-1], Mapping) else ""


def excerpt(content: object) -> str:
    r"""Return the beginning of a message's content in one line.

    >>> excerpt("What is\n 6 * 7?"), len(excerpt("word " * 100))
    ('What is 6 * 7?', 120)
    """
    text = escaped(" ".join(text_of(content)[:_LOOKED_AT_CHARS].split()))
    return text if len(text) <= EXCERPT_CHARS else f"{text[: EXCERPT_CHARS - 1]}…"


# -- the rows, as far as a page shows them: their prompts, and columns with few values ---------------------

MOST_VALUES = 20
LONGEST_VALUE = 60
NO_VALUE = "(none)"
_TEXTS = frozenset({"user_prompt", "system_prompt", "messages", SOLUTION})


@dataclass(frozen=True, slots=True)
class DatasetRows:
    """The excerpts of prompts by row, and the values of columns that put rows into groups, by column and row.

    `problem` says why the dataset could not be used; "" if it could.
    """

    prompts: Mapping[int, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[int, str]] = field(default_factory=dict)
    problem: str = ""


def dataset_rows(run: StoredEvalRun, rows: Sequence[int]) -> DatasetRows:
    """Read these rows of an eval run's dataset."""
    path, manifest = run.dataset, run.manifest
    name = shown(path)
    try:
        dataset = open_dataset(
            path, manifest.columns, name, recorded=bool(manifest.subject.extra.get("recorded", False))
        )
        is_kept = path == run.directory.rows
        if not is_kept and manifest.dataset_sha256 != dataset.digest():
            return DatasetRows(problem=f"{name} has changed since the eval run began")
        return _rows(dataset, rows, is_kept=is_kept)
    except (OsmosisError, IndexError) as error:
        return DatasetRows(problem=" ".join(str(error).split()))


def _rows(dataset: Dataset, rows: Sequence[int], *, is_kept: bool) -> DatasetRows:
    prompts: dict[int, str] = {}
    columns: dict[str, dict[int, str] | None] = {}
    with dataset.open() as file:
        for index in rows:
            row = dataset.read(file, index)
            if row.messages:
                prompts[index] = excerpt(row.messages[-1].get("content"))
            record = row.record
            if is_kept:  # an environment gave the row its columns as metadata
                metadata = record.get("metadata")
                given = metadata if isinstance(metadata, Mapping) else {}
                record = {"ground_truth": record.get("ground_truth"), **given}
            for column, value in _values(record):
                known = columns.setdefault(column, {})
                if known is None:
                    continue
                text = _text(value)
                if text is None:
                    columns[column] = None  # a column of something else
                else:
                    known[index] = text
    groups: dict[str, Mapping[int, str]] = {}
    for column, known in columns.items():
        values = {index: known.get(index, NO_VALUE) for index in rows} if known is not None else {}
        n_values = len({*values.values()})
        if 2 <= n_values <= MOST_VALUES and 2 * n_values <= len(values):  # more than one row each, on average
            groups[column] = values
    return DatasetRows(prompts, groups)


def _values(record: Mapping[str, Any], above: str = "", levels: int = 3) -> Iterator[tuple[str, Any]]:
    """Yield the values of a row by column; those inside an object by "column.key", down to some level."""
    for name, value in record.items():
        column = f"{above}{name}"
        if column in _TEXTS:
            continue
        if isinstance(value, Mapping) and levels > 1:
            yield from _values(value, f"{column}.", levels - 1)
        else:
            yield column, value


def _text(value: object) -> str | None:
    """Return a short value as text, None for what is none."""
    if value is None:
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return f"{value:g}" if isinstance(value, float) else str(value)
    if isinstance(value, str) and len(value) <= LONGEST_VALUE and "\n" not in value:
        return escaped(value)
    return None
