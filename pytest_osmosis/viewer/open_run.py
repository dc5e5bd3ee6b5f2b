"""`OpenRun`: an eval run that is read, and read on while it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_osmosis.record.find_run import StoredEvalRun, stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.stored_results import StoredResults, cost_of, read_stored, row_digests_of, stored_now
from pytest_osmosis.viewer.dataset_rows import DatasetRows, dataset_rows
from pytest_osmosis.viewer.ended_journal import EndedJournal
from pytest_osmosis.viewer.journal_index import ChangedRuns, JournalIndex, JournalSlices
from pytest_osmosis.viewer.run_page import SharedTexts, Slices, columns_of, head_of, rows_of, runs_of
from pytest_osmosis.viewer.shapes import RunColumns, RunHead, RunPage
from pytest_osmosis.viewer.slices import slices_of


class OpenRun:
    """A stored eval run with an index of its journal. `read` reads it for the first time, and on.

    `runs` are those of its page, in their order. Raises `OsmosisError` for files that cannot be read. It is not safe to
    use from several threads at once.

    `results` are those that this session made, which need not be read back: then only the places of conversations are
    read, and that once.
    """

    def __init__(self, directory: RunDirectory, results: Results | None = None) -> None:
        self.directory = directory
        self._results = results
        self.index = _index(directory, results)
        self.stored: StoredResults
        self.runs: Sequence[RunId] = ()
        self._texts = SharedTexts()
        self._dataset: DatasetRows | None = None
        self._slices_of_journal = JournalSlices(directory.journal)

    def read(self) -> ChangedRuns:
        """Read what is new."""
        changed = self.index.read()
        self.take()
        return changed

    def take(self) -> None:
        """Take what `index` has read, and read the other files."""
        self.stored = self._stored()
        self.runs = runs_of(self.stored)

    def _stored(self) -> StoredResults:
        run: StoredEvalRun = stored(self.directory)
        if self._results is not None:
            return stored_now(run, self._results, self.index.found)
        return read_stored(run, self.index.found, with_rows=False)

    def page(self, seq: int = 0) -> RunPage:
        """Return the page on all that was read."""
        digests = row_digests_of(self.stored.run, self.index.found)
        rows = rows_of(self.runs, digests, self.prompts)
        columns = columns_of(self.stored, self.runs, rows["index"], self._texts, self.index.begun)
        return RunPage(seq=seq, head=self.head(), rows=rows, runs=columns)  # after the columns, which add errors

    def head(self) -> RunHead:
        """Return the head of the page."""
        results = self.stored.results
        slices = [] if results is None else slices_of(results, self.dataset, self.rows)
        return head_of(self.stored, self._texts, Slices(slices, self.dataset.problem))

    def columns(self, at: Sequence[int]) -> RunColumns:
        """Return some runs in columns, by their positions in `runs`. Before it, `head` lacks their new errors."""
        runs = [self.runs[each] for each in at]
        return columns_of(self.stored, runs, self.rows, self._texts, self.index.begun)

    def new_columns(self, at: Sequence[int]) -> RunColumns:
        """Return some runs in columns, as the events have them that were read since `read`, without its statistics."""
        runs = [self.runs[each] for each in at]
        records = [self.index.found.ledger.records[run] for run in runs]
        costs = {record.run: cost_of(self.stored.run, None, record) for record in records}
        known = {run: cost for run, cost in costs.items() if cost is not None}
        now = replace(self.stored, records=records, costs_usd=known)
        return columns_of(now, runs, self.rows, self._texts, self.index.begun)

    @property
    def texts(self) -> SharedTexts:
        """The errors and finish reasons to which columns refer."""
        return self._texts

    @property
    def rows(self) -> list[int]:
        """The indices of the rows of `runs`."""
        return list(dict.fromkeys(run.row for run in self.runs))

    @property
    def dataset(self) -> DatasetRows:
        """The rows of the dataset, which is read once."""
        if self._dataset is None:
            self._dataset = dataset_rows(self.stored.run, self.rows)
        return self._dataset

    @property
    def prompts(self) -> Mapping[int, str]:
        """The excerpts of the prompts of rows, by index: as they were sent, else as the dataset has them."""
        return {**self.dataset.prompts, **self.index.prompts}

    def conversation(self, at: int) -> bytes | None:
        """Return the JSON of a `Conversation` by the position of its run, None if nothing of it is stored."""
        places = self.index.places(self.runs[at])
        return None if places is None else self._slices_of_journal.conversation(places)

    def close(self) -> None:
        self._slices_of_journal.close()


def _index(directory: RunDirectory, results: Results | None) -> JournalIndex | EndedJournal:
    if results is None:
        return JournalIndex(directory.journal)
    return EndedJournal(directory.journal, {record.run: record for record in results.all_records})
