"""Eval runs that somebody looks at, each read on while its files change.

Nothing watches the files: an eval run is read on when a browser asks, and any number of browsers cause one reading. The
page of an eval run is made as a whole. Of 20,000 runs that takes a second or more, so afterwards the page stays as it
is for a while.
"""

from __future__ import annotations

from threading import Lock
from time import monotonic, thread_time

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.viewer.comparing import ComparedRun
from pytest_osmosis.viewer.open_run import OpenRun
from pytest_osmosis.viewer.report_file import encoded
from pytest_osmosis.viewer.run_row import row_of
from pytest_osmosis.viewer.run_version import RunVersion, run_version
from pytest_osmosis.viewer.search import is_seen
from pytest_osmosis.viewer.shapes import SearchHits

RESTS = 4
"""After a page was made, it stays as it is for this many times the CPU time that this took."""
SEARCH_S = 0.25
"""The time that one request may search; the browser asks for the rest."""


class LiveRun:
    """An eval run with the newest page on it. Its methods may be called in several threads at once.

    Raises `OsmosisError` for files that cannot be read.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._open = OpenRun(directory)
        self._journal = Lock()  # protects the index and the conversations of _open, for moments only
        self._lock = Lock()  # protects all below, and the rest of _open
        self._page = b""
        self._version: RunVersion | None = None
        self._rests_until = 0.0

    def page(self) -> bytes:
        """Return the `RunPage` as JSON."""
        with self._lock:
            self._read()
            return self._page

    def conversation(self, at: int) -> bytes | None:
        """Return the conversation of the run at a position of the page, None if nothing of it is stored.

        Raises `IndexError` if the page has no such position.
        """
        self._read_once()
        with self._journal:
            if not 0 <= at < len(self._open.runs):
                raise IndexError(at)
            return self._open.conversation(at)

    def search(self, text: str, begin: int) -> SearchHits:
        """Search the conversations of runs from a position on, for as long as one request may take."""
        self._read_once()
        until = monotonic() + SEARCH_S
        hits: list[int] = []
        at, n = begin, len(self._open.runs)
        while at < n and (at == begin or monotonic() < until):
            with self._journal:
                conversation = self._open.conversation(at)
            if conversation is not None and is_seen(text, conversation):
                hits.append(at)
            at += 1
        return SearchHits(at=hits, searched=min(at, n), is_whole=at >= n)

    def compared(self) -> ComparedRun:
        """Return the eval run as a side of a comparison."""
        with self._lock:
            self._read()
            return ComparedRun(row_of(self._open.stored), self._open.stored, dict(self._open.prompts))

    def _read_once(self) -> None:
        if not self._page:
            with self._lock:
                self._read()

    def _read(self) -> None:
        """Read what is new, and make the page of it."""
        if monotonic() < self._rests_until or (version := run_version(self._directory)) == self._version:
            return
        self._version = None  # what cannot be read now is read again at the next look
        with self._journal:
            self._open.index.read()
        began = thread_time()
        self._open.take()
        self._page = encoded(self._open.page())
        self._rests_until = monotonic() + RESTS * (thread_time() - began)
        self._version = version
