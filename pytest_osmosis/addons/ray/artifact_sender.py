"""A host on another machine sends the files in a run's artifacts folder to the engine.

A thread of its own reads them, so that large folders hold up no rollout. Regular files alone are sent: links are not
followed, and pipes and devices not opened. Functions of the standard library are imported by name, so that user code
cannot replace them in their modules.
"""

from __future__ import annotations

import os
import stat
from asyncio import CancelledError, get_running_loop
from binascii import b2a_base64
from collections.abc import Iterator
from itertools import count
from os import close, fstat, lstat, read, scandir
from os import open as open_at
from threading import Event
from typing import NamedTuple

from pytest_osmosis.host.protocol import MOST_BYTES, MOST_FILES, EventSink, Key, LeftOutEvent, WhyLeftOut

DEEPEST = 32
"""Folders within so many others are left out."""
PIECE_BYTES = 96 << 10
"""Files are sent in pieces of this size; base64 makes a third more of it."""
TICK_NS = 20_000_000
"""The clock of file systems stands still for up to this long."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class ArtifactSender:
    """Sends the artifacts of runs, each of which has a folder of its own in `folder`.

    Nothing here raises an error of a file: a `left_out` event says what was not sent.
    """

    def __init__(self, folder: str, events: EventSink) -> None:
        from concurrent.futures import ThreadPoolExecutor  # few hosts send files

        self._folder = folder
        self._events = events
        self._thread = ThreadPoolExecutor(1, "osmosis-artifacts")

    async def send_changed(self, key: Key, since_ns: int = 0) -> None:
        """Send the files of a run that changed after `since_ns`. If this is cancelled, the rest is left out."""
        folder = f"{self._folder}{os.sep}{key.run}"
        try:
            lstat(folder)
        except (OSError, ValueError):
            return  # there are none
        why, stopped = set[WhyLeftOut](), Event()
        try:
            await get_running_loop().run_in_executor(
                self._thread, self._send_files, key, folder, since_ns - TICK_NS, why, stopped
            )
        except CancelledError:
            why.add("unreadable")
            raise
        except Exception:  # no thread, no memory
            why.add("unreadable")
        finally:
            stopped.set()
            for each in sorted(why.copy()):  # the thread may not have ended
                event: LeftOutEvent = {"ev": "left_out", **key.to_json(), "why": each}
                self._events.emit(event)

    def _send_files(self, key: Key, top: str, since_ns: int, why: set[WhyLeftOut], stopped: Event) -> None:
        room = MOST_BYTES
        for file in _files_in(top, why):
            if file.status.st_ctime_ns < since_ns:
                continue
            if file.status.st_size > room:
                why.add("large")
                continue
            try:
                room -= self._send_file(key, file, room, stopped)
            except OSError:
                why.add("unreadable")
            if stopped.is_set():
                break

    def _send_file(self, key: Key, file: _File, room: int, stopped: Event) -> int:
        """Return how many bytes were sent: those that it holds now."""
        descriptor = open_at(file.name, _FILE, dir_fd=file.folder)
        try:
            status = fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise OSError("another one took its place")
            size, offset, is_last = min(status.st_size, room), 0, False
            while not is_last and not stopped.is_set():
                data = read(descriptor, min(PIECE_BYTES, size - offset))
                is_last = offset + len(data) >= size or not data
                self._events.send_artifact(
                    {
                        "ev": "artifact",
                        **key.to_json(),
                        "path": file.path,
                        "data": b2a_base64(data, newline=False).decode("ascii"),
                        "offset": offset,
                        "last": is_last,
                    }
                )
                offset += len(data)
            return offset
        finally:
            close(descriptor)


class _File(NamedTuple):
    """A regular file: `name` in the open folder `folder`."""

    path: str
    status: os.stat_result
    folder: int
    name: str


def _files_in(top: str, left_out: set[WhyLeftOut]) -> Iterator[_File]:
    """Yield the regular files in a folder, without following a link. `left_out` gets the causes why others are not."""
    numbers = count(1)

    def of(name: str, around: int | None, before: str, depth: int) -> Iterator[_File]:
        try:
            folder = open_at(name, _FOLDER, dir_fd=around)
        except OSError:
            left_out.add("unreadable" if before else "special")
            return
        try:
            with scandir(folder) as entries:
                for entry in entries:
                    if next(numbers) > MOST_FILES:
                        left_out.add("large")
                        return
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # it is gone already
                    path = f"{before}{entry.name}"
                    if stat.S_ISREG(status.st_mode):
                        yield _File(path, status, folder, entry.name)
                    elif not stat.S_ISDIR(status.st_mode):
                        left_out.add("special")
                    elif depth == DEEPEST:
                        left_out.add("large")
                    else:
                        yield from of(entry.name, folder, f"{path}/", depth + 1)
        except OSError:
            left_out.add("unreadable")
        finally:
            close(folder)

    return of(top, None, "", 1)
