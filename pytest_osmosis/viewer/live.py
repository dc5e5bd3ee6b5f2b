"""Eval runs that somebody looks at, each read on while its files change.

Nothing watches the files: an eval run is read on when a browser asks, and any number of browsers cause one reading. To
make a page of many runs takes a second or more, so that is done for a part of the time only; in between, only the runs
with new events are made anew.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from itertools import count
from threading import Lock

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.viewer.comparing import ComparedRun
from pytest_osmosis.viewer.journal_index import ChangedRuns
from pytest_osmosis.viewer.live_page import LivePage
from pytest_osmosis.viewer.open_run import OpenRun
from pytest_osmosis.viewer.run_version import RunVersion, run_version
from pytest_osmosis.viewer.search import TextSearch
from pytest_osmosis.viewer.shapes import Changes, RunPage, SearchHits

MOST_OPEN = 8
"""Eval runs that are kept in memory; of 20,000 rollouts, each takes some 60 MB."""
LOOK_S = 0.2
"""Files are looked at no more often, however many browsers ask."""
WHOLE_PAGES = 9
"""After a page was made as a whole, none is for this many times as long."""
SEARCH_S = 0.25
"""The time that one request may search; the browser asks for the rest."""


class LiveRun:
    """An eval run with the newest page on it. Its methods may be called in several threads at once.

    `numbers` gives the numbers of changes. Raises `OsmosisError` for files that cannot be read.
    """

    def __init__(self, directory: RunDirectory, numbers: Iterator[int]) -> None:
        self._directory = directory
        self._numbers = numbers
        self._open = OpenRun(directory)
        self._journal = Lock()  # protects the index and the conversations of _open, for moments only
        self._lock = Lock()  # protects all below, and the rest of _open
        self._live: LivePage | None = None
        self._version: RunVersion | None = None
        self._looked = 0.0
        self._next_whole = 0.0
        self._is_behind = False  # True if the statistics are older than the runs
        self._places: Mapping[RunId, int] = {}

    def page(self) -> RunPage:
        with self._lock:
            return self._read().page

    def changes(self, since: int) -> Changes:
        """Return the changes since the page with the number `since`."""
        with self._lock:
            return self._read().changes(since)

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
        wanted, until = TextSearch(text), time.monotonic() + SEARCH_S
        hits: list[int] = []
        at, n = begin, len(self._open.runs)
        while at < n and (at == begin or time.monotonic() < until):
            with self._journal:
                conversation = self._open.conversation(at)
            if conversation is not None and wanted.is_in(conversation):
                hits.append(at)
            at += 1
        return SearchHits(at=hits, searched=min(at, n), is_whole=at >= n)

    def compared(self) -> ComparedRun:
        """Return the eval run as a side of a comparison."""
        with self._lock:
            page = self._read().page
            return ComparedRun(page["head"]["row"], self._open.stored, dict(self._open.prompts))

    def close(self) -> None:
        with self._journal:
            self._open.close()

    def _read_once(self) -> None:
        if self._live is None:
            with self._lock:
                self._read()

    def _read(self) -> LivePage:
        """Return the page after reading what is new."""
        live, now = self._live, time.monotonic()
        if live is None:
            self._version = run_version(self._directory)
            live = self._live = LivePage(self._whole_page(), next(self._numbers))
        elif now - self._looked < LOOK_S:
            return live
        elif (version := run_version(self._directory)) != self._version:
            only_grows = self._version is not None and version.only_journal_differs(self._version)
            self._version = None  # what cannot be read now is read as a whole at the next look
            if not (only_grows and now < self._next_whole and self._take_new_runs(live)):
                live.renew(self._whole_page(), next(self._numbers))
            self._version = version
        elif self._is_behind and now >= self._next_whole:
            live.renew(self._whole_page(), next(self._numbers))
        self._looked = time.monotonic()
        return live

    def _whole_page(self) -> RunPage:
        began = time.monotonic()
        self._read_journal()
        self._open.take()
        page = self._open.page()
        self._places = {run: place for place, run in enumerate(self._open.runs)}
        self._is_behind = False
        ended = time.monotonic()
        self._next_whole = ended + WHOLE_PAGES * (ended - began)
        return page

    def _read_journal(self) -> ChangedRuns:
        with self._journal:
            changed = self._open.index.read()
            if changed.all:
                self._open.close()  # it may be another file than the one that conversations were cut out of
        return changed

    def _take_new_runs(self, live: LivePage) -> bool:
        """Put the runs with new events into the page, and return True if these are all that changed."""
        changed = self._read_journal()
        if changed.all or not changed.runs <= self._places.keys():
            return False
        at = sorted(self._places[run] for run in changed.runs)
        columns, texts = self._open.new_columns(at), self._open.texts
        names = {"errors": list(texts.errors.all), "finish_reasons": list(texts.finish_reasons.all)}
        live.put(at, columns, names, next(self._numbers))
        self._is_behind = True
        return True


class LiveRuns:
    """The eval runs that were asked for last."""

    def __init__(self) -> None:
        self._runs: OrderedDict[str, LiveRun] = OrderedDict()
        self._lock = Lock()  # protects _runs
        self._numbers = count(1)

    def of(self, directory: RunDirectory) -> LiveRun:
        """Return the eval run in a directory."""
        with self._lock:
            key = str(directory.path)
            run = self._runs.pop(key, None) or LiveRun(directory, self._numbers)
            self._runs[key] = run
            left_out = [self._runs.popitem(last=False)[1]] if len(self._runs) > MOST_OPEN else []
        for each in left_out:
            each.close()
        return run
