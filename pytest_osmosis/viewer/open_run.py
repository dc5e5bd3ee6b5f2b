"""`OpenRun`: an eval run that is read, and read on while it changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_osmosis.record.find_run import stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.stored_results import StoredResults, read_stored
from pytest_osmosis.viewer.dataset_rows import DatasetRows, dataset_rows
from pytest_osmosis.viewer.journal_index import JournalIndex
from pytest_osmosis.viewer.run_page import run_page, runs_of
from pytest_osmosis.viewer.shapes import RunPage


class OpenRun:
    """A stored eval run with an index of its journal. `read` reads it for the first time, and on.

    `runs` are those of its page, in their order. Raises `OsmosisError` for files that cannot be read. It is not safe to
    use from several threads at once.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.index = JournalIndex(directory.journal)
        self.stored: StoredResults
        self.runs: Sequence[RunId] = ()
        self._dataset: DatasetRows | None = None

    def read(self) -> None:
        """Read what is new."""
        self.index.read()
        self.take()

    def take(self) -> None:
        """Take what the index has read, and read the other files."""
        self.stored = read_stored(stored(self.directory), self.index.found, with_rows=False)
        self.runs = runs_of(self.stored)

    def page(self) -> RunPage:
        """Return the page on all that was read."""
        return run_page(self.stored, self.runs, self.prompts, self.dataset)

    @property
    def dataset(self) -> DatasetRows:
        """The rows of the dataset, which is read once."""
        if self._dataset is None:
            self._dataset = dataset_rows(self.stored.run, list(dict.fromkeys(run.row for run in self.runs)))
        return self._dataset

    @property
    def prompts(self) -> Mapping[int, str]:
        """The excerpts of the prompts of rows, by index: as they were sent, else as the dataset has them."""
        return {**self.dataset.prompts, **self.index.prompts}

    def conversation(self, at: int) -> bytes | None:
        """Return the JSON of a `Conversation` by the position of its run, None if nothing of it is stored."""
        return self.index.conversation(self.runs[at])
