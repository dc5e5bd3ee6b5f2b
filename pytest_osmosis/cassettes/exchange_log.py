"""An exchange log that this process appends to: that of an eval run, or a cache that several sessions share.

Each append holds a lock on the file, and begins after the last whole line. Lines reach the operating system at once.
They are forced to the disk at most once a second and at the end, which matters only if the machine dies.
"""

from __future__ import annotations

import os
import time
from io import FileIO
from pathlib import Path

from pytest_osmosis.cassettes.lines import LOG, header
from pytest_osmosis.errors import CassetteError, Problem
from pytest_osmosis.text.paths import shown

SYNC_INTERVAL_S = 1.0
READ_BYTES = 1 << 16


class ExchangeLog:
    """A log at `path`, which is made, for its owner alone, with the first lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: FileIO | None = None
        self._synced = 0.0

    def append(self, lines: bytes) -> None:
        """Append whole lines, each ending in a newline. Raises `CassetteError` if the disk takes no more."""
        try:
            file = self._file = self._file or self._opened()
            _lock(file)
            try:
                end = _end_of_lines(file)
                file.truncate(end)
                file.seek(end)
                _write(file, lines if end else header(LOG) + lines)
            finally:
                _unlock(file)
            if time.monotonic() - self._synced > SYNC_INTERVAL_S:
                self._sync(file)
        except OSError as error:
            raise self._fault(error) from error

    def close(self) -> None:
        """Force the lines to the disk. Raises `CassetteError` if it takes no more."""
        file, self._file = self._file, None
        if file is None:
            return
        try:
            self._sync(file)
        except OSError as error:
            raise self._fault(error) from error
        finally:
            file.close()

    def _opened(self) -> FileIO:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        return FileIO(descriptor, "r+b")

    def _sync(self, file: FileIO) -> None:
        os.fsync(file.fileno())
        self._synced = time.monotonic()

    def _fault(self, error: OSError) -> CassetteError:
        return CassetteError([Problem(shown(self.path), f"cannot be written: {error.strerror}")])


def _write(file: FileIO, lines: bytes) -> None:
    view = memoryview(lines)
    while view:
        view = view[file.write(view) :]


def _lock(file: FileIO) -> None:
    """Wait until no other process appends to a file. A file system without locks is used without."""
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX)
    except (ImportError, OSError):
        return


def _unlock(file: FileIO) -> None:
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_UN)
    except (ImportError, OSError):
        return


def _end_of_lines(file: FileIO) -> int:
    """Return the position after the last whole line."""
    end = file.seek(0, os.SEEK_END)
    while end > 0:
        begin = max(0, end - READ_BYTES)
        file.seek(begin)
        if (at := file.read(end - begin).rfind(b"\n")) >= 0:
            return begin + at + 1
        end = begin
    return 0
