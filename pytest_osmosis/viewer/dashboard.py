"""The eval runs of a folder, page by page, as the dashboard's front end asks for them.

An eval run is looked up by its name among those in the folder, so no path is made of a request. All methods read
files, and may be called in several threads at once.
"""

from __future__ import annotations

import json
from pathlib import Path
from threading import Lock
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import is_run, runs_above
from pytest_osmosis.record.run_directory import RUNS
from pytest_osmosis.text.paths import absolute
from pytest_osmosis.viewer.run_list import RunList


class NoPageError(OsmosisError):
    """A request for what the dashboard does not have."""


class Dashboard:
    """The pages on the eval runs in `home`, or else in the nearest `.osmosis/runs` from `folder` upwards."""

    def __init__(self, folder: Path, home: Path | None = None) -> None:
        self._folder = folder
        self._home = home
        self._list = RunList()
        self._listing = Lock()  # protects _list, which keeps what it read

    def runs(self) -> bytes:
        """Return the list of eval runs."""
        home, folders = self._found()
        with self._listing:
            return encoded(self._list.page(_workspace(home), folders))

    def home(self) -> Path:
        """Return the folder with the eval runs, which need not exist yet."""
        return self._found()[0]

    def _found(self) -> tuple[Path, list[Path]]:
        if self._home is None:
            return runs_above(self._folder)
        return self._home, [run for run in self._home.glob("*") if is_run(run)]


def encoded(page: Any) -> bytes:
    """Return a page as JSON, in ASCII."""
    return json.dumps(page, separators=(",", ":"), allow_nan=False).encode("ascii")


def _workspace(home: Path) -> str:
    """Return the name of the folder that holds `.osmosis/runs`, or of one that holds eval runs by itself."""
    folder = absolute(home)
    return folder.parent.parent.name if folder.parts[-2:] == RUNS.parts else folder.name
