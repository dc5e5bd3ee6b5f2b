"""Eval runs that are read, and read on while their files change.

`JournalIndex` folds a journal, also as it grows, and notes where conversations are, to cut the lines of one out of the
file: memory holds none. A torn last line waits until it is whole. The journal of another eval run at the same path is
read from its beginning.

Nothing watches the files: an eval run is read on when a browser asks. The page of one that has ended is made of its
results alone, and the journal, which takes longer, is read while somebody looks at it. The page of 20,000 runs takes a
second or more, so afterwards it stays as it is for a while.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from threading import Lock, Thread
from time import monotonic, thread_time
from typing import Any

from pytest_osmosis.addons.viewer.comparing import ComparedRun
from pytest_osmosis.addons.viewer.run_list import RunVersion, row_of, run_version
from pytest_osmosis.addons.viewer.run_page import DatasetRows, dataset_rows, excerpt, run_page, runs_of
from pytest_osmosis.addons.viewer.shapes import RunPage, SearchHits, encoded
from pytest_osmosis.addons.viewer.stored_results import Replayed, StoredResults, read_stored
from pytest_osmosis.errors import JournalError
from pytest_osmosis.files.reading import parsed
from pytest_osmosis.record.find_run import stored
from pytest_osmosis.record.journal import EventReader, events_from
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId

_UNSEEN = frozenset(
    (
        *("ev", "row", "run", "model_tag", "attempt", "at", "ms", "n_prompt", "systemic", "role"),
        *("type", "id", "call_id", "tool_call_id", "tool_use_id", "signature"),
        *("encrypted_content", "thought_signature", "usage", "tokens", "logprobs"),
    )
)
"""Parts of an event that no reader sees as text, the same as in viewer/src/source/text_search.ts."""
_DATA = "data:"
"""The beginning of an address that holds an image itself."""
RESTS = 4
"""After a page was made, it stays as it is for this many times the CPU time that this took."""
SEARCH_S = 0.25
"""The time that one request may search; the browser asks for the rest."""


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


def is_seen(text: str, conversation: bytes) -> bool:
    """Return True if a reader sees a text in the JSON of a `Conversation`, in any case.

    `role` is a key of every message, and no hit.
    """
    wanted = text.lower()
    return any(wanted in each.lower() for each in seen_texts(json.loads(conversation)))


def seen_texts(value: Any) -> Iterator[str]:
    """Yield the texts in a conversation, or in a part of it, that a reader sees."""
    if isinstance(value, str):
        if not value.startswith(_DATA):
            yield value
    elif isinstance(value, Mapping):
        for key, each in value.items():
            if key == "arguments" and isinstance(each, str):
                yield from _arguments(each)
            elif key not in _UNSEEN:
                yield from seen_texts(each)
    elif isinstance(value, list):
        for each in value:
            yield from seen_texts(each)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield json.dumps(value)


def _arguments(text: str) -> Iterator[str]:
    """Yield the arguments of a tool call, which are JSON in a text, as they are written and as they are laid out."""
    yield text
    try:
        value = parsed(text)
    except ValueError:
        return
    yield json.dumps(value, indent=2, ensure_ascii=False)
    yield from seen_texts(value)


class OpenRun:
    """A stored eval run with an index of its journal, which is read on while it grows.

    `runs` are those of its page, in their order. Raises `OsmosisError` for files that cannot be read. `json`,
    `conversation`, `search` and `compared` may be called in several threads at once, and read what is new first.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory
        self.index = JournalIndex(directory.journal)
        self.stored: StoredResults
        self.runs: Sequence[RunId] = ()
        self._dataset: DatasetRows | None = None
        self._journal = Lock()  # protects the index and the conversations, for moments only
        self._lock = Lock()  # protects the rest
        self._is_read = self._is_whole = self._indexed = False
        self._json = b""
        self._version: RunVersion | None = None
        self._rests_until = 0.0

    def read(self) -> None:
        """Read what is new."""
        self._index()
        self._take(read_stored(stored(self.directory), self.index.found), whole=True)

    def _index(self) -> None:
        with self._journal:
            self.index.read()
            self._indexed = True

    def _index_once(self) -> None:
        if not self._indexed:
            self._index()

    def _take(self, found: StoredResults, *, whole: bool) -> None:
        self.stored, self.runs = found, runs_of(found)
        self._is_read, self._is_whole = True, whole

    def _read_results(self) -> bool:
        """Read an eval run without its journal. Return False if its page needs that.

        It does if there are no results, or those of a version that did not write `turns`, or no rows of the dataset.
        """
        found = read_stored(stored(self.directory), Replayed())
        lacks = any(record.rolled and record.turns is None for record in found.records)
        if found.is_from_journal or found.results.cassette is not None or lacks:
            return False
        self._take(found, whole=False)
        return not self.dataset.problem

    def page(self) -> RunPage:
        """Return the page on all that was read."""
        return run_page(self.stored, self.runs, self.prompts, self.dataset)

    def json(self) -> bytes:
        """Return the newest page as JSON."""
        with self._lock:
            self._read_on(whole=False)
            return self._json

    def compared(self) -> ComparedRun:
        """Return the eval run as a side of a comparison."""
        with self._lock:
            self._read_on()
            return ComparedRun(row_of(self.stored), self.stored, self.prompts)

    @property
    def dataset(self) -> DatasetRows:
        """The rows of the dataset, which is read once."""
        if self._dataset is None:
            self._dataset = dataset_rows(self.stored.run, list(dict.fromkeys(run.row for run in self.runs)))
        return self._dataset

    @property
    def prompts(self) -> Mapping[int, str]:
        """The excerpts of the prompts of rows, by index: as the dataset has them, else as they were sent."""
        return {**self.index.prompts, **self.dataset.prompts}

    def conversation(self, at: int) -> bytes | None:
        """Return the JSON of a `Conversation` by the position of its run, None if nothing of it is stored.

        Raises `IndexError` if the page has no such position.
        """
        self._read_once()
        if not 0 <= at < len(self.runs):
            raise IndexError(at)
        self._index_once()
        with self._journal:
            return self.index.conversation(self.runs[at])

    def search(self, text: str, begin: int) -> SearchHits:
        """Search the conversations of runs from a position on, for as long as one request may take."""
        self._read_once()
        until = monotonic() + SEARCH_S
        hits: list[int] = []
        at, n = begin, len(self.runs)
        while at < n and (at == begin or monotonic() < until):
            conversation = self.conversation(at)
            if conversation is not None and is_seen(text, conversation):
                hits.append(at)
            at += 1
        return SearchHits(at=hits, searched=min(at, n), is_whole=at >= n)

    def _read_once(self) -> None:
        if not self._is_read:
            with self._lock:
                self._read_on()

    def _read_on(self, *, whole: bool = True) -> None:
        """Read what is new, the journal too if the page needs it or this is to be `whole`, and make the page of it."""
        version = None if monotonic() < self._rests_until else run_version(self.directory)
        if self._is_read and (self._is_whole or not whole) and version in (None, self._version):
            return
        self._version, self._indexed = None, False  # what cannot be read now is read again at the next look
        began = thread_time()
        if whole or not self._read_results():
            self._index()
            began = thread_time()
            self.read()
        self._json = encoded(self.page())
        self._rests_until = monotonic() + RESTS * (thread_time() - began)
        self._version = version
        if not self._indexed:
            Thread(target=self._read_ahead, daemon=True).start()

    def _read_ahead(self) -> None:
        with suppress(JournalError):  # who opens a conversation is told
            self._index_once()
