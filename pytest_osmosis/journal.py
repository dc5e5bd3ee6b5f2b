"""The journal: events of one eval run, one JSON object a line, append-only, one writer. It is the authority.

Lines are flushed to the operating system as they are appended, so a killed process loses nothing that was appended;
they are forced to the disk at most once a second and at the end, which only matters when the machine itself dies.
A torn last line (a crash in the middle of an append) is left out on reading; a bad line elsewhere is corruption.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

from pytest_osmosis.errors import JournalError
from pytest_osmosis.records import Event

SYNC_INTERVAL_S = 1.0


class Journal:
    """Appends lines to `path`, which must not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = path.open("xb", buffering=0)
        except OSError as error:
            raise JournalError(f"{path}: cannot be written: {error.strerror}") from error
        self._synced = time.monotonic()

    def append(self, lines: bytes) -> None:
        """Append whole lines, each ending in a newline. `JournalError` where the disk takes no more."""
        try:
            view = memoryview(lines)
            while view:
                view = view[self._file.write(view) :]
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error.strerror}") from error
        if time.monotonic() - self._synced > SYNC_INTERVAL_S:
            self.sync()

    def sync(self) -> None:
        """Force what was appended to the disk. `JournalError` where it does not take it."""
        try:
            os.fsync(self._file.fileno())
        except OSError as error:
            raise JournalError(f"{self.path}: cannot be written: {error.strerror}") from error
        self._synced = time.monotonic()

    def close(self) -> None:
        """Sync and close. Idempotent."""
        if not self._file.closed:
            try:
                self.sync()
            finally:
                self._file.close()


def encode(event: Event) -> bytes:
    """One line of the journal, pure ASCII, strict JSON."""
    return json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def replay(path: Path) -> Iterator[Event]:
    """The events of a journal in order; a torn last line is left out.

    `JournalError` names any other bad line, and a file that cannot be read.
    """
    try:
        file = path.open("rb")
    except OSError as error:
        raise JournalError(f"{path}: cannot be read: {error.strerror}") from error
    with file:
        for number, line in enumerate(file, start=1):
            if line.endswith(b"\n"):
                yield _event(line, f"{path}:{number}")


def _event(line: bytes, where: str) -> Event:
    try:
        event = json.loads(line)
    except ValueError as error:
        raise JournalError(f"{where}: not a journal line: {error}") from error
    if not isinstance(event, dict):
        raise JournalError(f"{where}: not a journal line: an event is a JSON object, this is {type(event).__name__}")
    return event
