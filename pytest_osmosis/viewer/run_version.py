"""The version of a run directory: it is another one if anything that the dashboard shows may have changed."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_lock import holder_of

_State = tuple[int, int, int, int]
"""The times, the size and the number of a file."""
_WATCHED = ("manifest", "journal", "results", "lock", "submission")


RunVersion = tuple[object, ...]
"""The states of the files, None for those that are missing, and the process that writes them."""


def run_version(directory: RunDirectory) -> RunVersion:
    """Return the version of an eval run's files, of which none is read whole."""
    return (*(_state(getattr(directory, name)) for name in _WATCHED), holder_of(directory))


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
