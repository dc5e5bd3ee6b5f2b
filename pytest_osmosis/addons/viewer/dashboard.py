"""The eval runs of a folder, page by page, as the dashboard's front end asks for them.

An eval run is looked up by its name among those in the folder, so no path is made of a request. All methods read
files, and may be called in several threads at once.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from threading import Lock

from pytest_osmosis.addons.viewer.comparing import MOST_RUNS, PastRun, comparison_page, history_page, past_run
from pytest_osmosis.addons.viewer.open_run import LiveRun
from pytest_osmosis.addons.viewer.report_file import encoded
from pytest_osmosis.addons.viewer.run_list import RunList
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import eval_in, home_above, is_run, listing_order, stored
from pytest_osmosis.record.run_directory import RUNS, RunDirectory
from pytest_osmosis.text.names import absolute, shown

MOST_OPEN = 8
"""Eval runs that are kept in memory; of 20,000 rollouts, each takes some 60 MB."""


class NoPageError(OsmosisError):
    """A request for what the dashboard does not have."""


class Dashboard:
    """The pages on the eval runs in `home`, or else in the nearest `.osmosis/runs` from `folder` upwards.

    Each page is JSON, in ASCII. Raises `NoPageError` for a name that no eval run has, and `OsmosisError` for files that
    cannot be read.
    """

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self._folder = folder
        self._home = home
        self._list = RunList()
        self._listing = Lock()  # protects _list, which keeps what it read
        self._live = lru_cache(MOST_OPEN)(lambda folder: LiveRun(RunDirectory(folder)))

    @property
    def home(self) -> Path:
        """The folder with the eval runs, which need not exist yet."""
        return home_above(self._folder) if self._home is None else self._home

    def runs(self) -> bytes:
        """Return the list of eval runs."""
        home = self.home
        with self._listing:
            return encoded(self._list.page(_workspace(home), _runs_in(home)))

    def run(self, name: str) -> bytes:
        return self._run(name).page()

    def conversation(self, name: str, at: int) -> bytes:
        """Return the conversation of the run at a position of its page, "null" if nothing of it is stored."""
        try:
            return self._run(name).conversation(at) or b"null"
        except IndexError:
            raise NoPageError(f"{name}: it has no run at position {at}") from None

    def search(self, name: str, text: str, begin: int) -> bytes:
        """Return the runs with a text in their conversation, searching from a position on."""
        return encoded(self._run(name).search(text, begin))

    def comparison(self, a: str, b: str) -> bytes:
        """Return eval run B compared with A."""
        return encoded(comparison_page(self._run(a).compared(), self._run(b).compared()))

    def history(self, eval_name: str) -> bytes:
        """Return the eval runs of one eval."""
        of_eval = sorted((run for run in _runs_in(self.home) if eval_in(run) == eval_name), key=listing_order)
        if not of_eval:
            raise NoPageError(f'no eval run of "{eval_name}"')
        past = [self._past(folder, is_shown=place < MOST_RUNS) for place, folder in enumerate(of_eval)]
        return encoded(history_page(eval_name, past))

    def _past(self, folder: Path, *, is_shown: bool) -> PastRun:
        with self._listing:
            row = self._list.row(folder)
        if not is_shown:
            return PastRun(row, None, (), dict)
        return past_run(row, stored(RunDirectory(folder)), lambda: self._live(folder).compared().prompts)

    def _run(self, name: str) -> LiveRun:
        home = self.home
        folder = next((each for each in home.glob("*") if each.name == name and is_run(each)), None)
        if folder is None:
            raise NoPageError(f'no eval run "{name}" in {shown(home)}: it was removed, or never there')
        return self._live(folder)


def _runs_in(home: Path) -> list[Path]:
    return [run for run in home.glob("*") if is_run(run)]


def _workspace(home: Path) -> str:
    """Return the name of the folder that holds `.osmosis/runs`, or of one that holds eval runs by itself."""
    folder = absolute(home)
    return folder.parent.parent.name if folder.parts[-2:] == RUNS.parts else folder.name
