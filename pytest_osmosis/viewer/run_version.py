"""The version of a run directory: it is another one if anything that the dashboard shows may have changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.record.lock_holder import Holder
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import holder_of
from pytest_osmosis.record.submission import submitted_process

_State = tuple[int, int, int, int]
"""The times, the size and the number of a file."""


class RunVersion(NamedTuple):
    """The states of the files, None for those that are missing, the process that writes them, and the submitted one."""

    files: tuple[_State | None, ...]
    holder: Holder | None
    submitted_is_alive: bool


def run_version(directory: RunDirectory) -> RunVersion:
    """Return the version of an eval run's files, of which none is read whole."""
    submitted = submitted_process(directory)
    watched = (directory.manifest, directory.journal, directory.results, directory.lock, directory.submission)
    return RunVersion(tuple(map(_state, watched)), holder_of(directory), submitted is not None and submitted.is_alive)


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
