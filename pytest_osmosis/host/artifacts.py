"""Sends the files that user code leaves in a run's artifacts folder to the engine, from a host on another machine.

A thread of its own reads them, so that large folders hold up no rollout. Regular files alone are sent: links are not
followed, and pipes and devices not opened. Functions of the standard library are imported by name, so that user code
cannot replace them in their modules.
"""

from __future__ import annotations

import os
import stat
from asyncio import CancelledError, Future, get_running_loop
from binascii import b2a_base64
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from os import close, fstat, lstat, read, scandir
from os import open as open_at
from queue import SimpleQueue
from threading import Event, Thread
from time import CLOCK_REALTIME, clock_gettime_ns
from types import MappingProxyType
from typing import NamedTuple, TypeVar

from pytest_osmosis.host.protocol import MOST_BYTES, MOST_FILES, EventSink, Key, LeftOutEvent, WhyLeftOut

T = TypeVar("T")

DEEPEST = 32
"""Folders within so many others are left out."""
PIECE_BYTES = 96 << 10
"""Files are sent in pieces of this size; base64 makes a third more of it."""
TICK_NS = 20_000_000
"""The clock of file systems stands still for up to this long, so a file may change twice at the same time."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class Stamp(NamedTuple):
    """The state of a file: another one after it was written. `is_settled` unless it changed a moment ago."""

    size: int
    modified_ns: int
    changed_ns: int
    inode: int
    is_settled: bool


Stamps = Mapping[str, Stamp]
"""The files of a folder, by their paths in it."""
NO_FILES: Stamps = MappingProxyType({})


class ArtifactSender:
    """Sends the artifacts of runs, each of which has a folder of its own in `folder`.

    Nothing here raises an error of a file: a `left_out` event says what was not sent.
    """

    def __init__(self, folder: str, events: EventSink) -> None:
        self._folder = folder
        self._events = events
        self._jobs: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._thread: Thread | None = None

    async def seen(self, key: Key) -> Stamps:
        """Return the files of a run as they are now, for a later `send_changed`."""
        stamps: dict[str, Stamp] = {}

        def look(stopped: Event) -> None:
            for file in _Walk(self._path(key)):
                if stopped.is_set():
                    return
                stamps[file.path] = file.stamp

        if self._has_any(key):
            await self._in_thread(look)
        return stamps

    async def send_changed(self, key: Key, before: Stamps = NO_FILES) -> None:
        """Send the files of a run that are new, or other than `before`.

        If this is cancelled, the rest is left out.
        """
        if not self._has_any(key):
            return
        why: set[WhyLeftOut] = set()
        try:
            await self._in_thread(lambda stopped: self._send_files(key, before, why, stopped))
        except CancelledError:
            why.add("unreadable")
            self._tell(key, why)
            raise
        except Exception:  # no thread, no memory
            why.add("unreadable")
        self._tell(key, why)

    def _tell(self, key: Key, why: set[WhyLeftOut]) -> None:
        for each in sorted(why):
            event: LeftOutEvent = {"ev": "left_out", **key.to_json(), "why": each}
            self._events.emit(event)

    def _path(self, key: Key) -> str:
        return f"{self._folder}{os.sep}{key.run}"

    def _has_any(self, key: Key) -> bool:
        try:
            lstat(self._path(key))
        except (OSError, ValueError):
            return False
        return True

    def _send_files(self, key: Key, before: Stamps, why: set[WhyLeftOut], stopped: Event) -> None:
        walk, room = _Walk(self._path(key)), MOST_BYTES
        for file in walk:
            if file.stamp.is_settled and before.get(file.path) == file.stamp:
                continue
            if file.stamp.size > room:
                why.add("large")
                continue
            try:
                room -= self._send_file(key, file, room, stopped)
            except OSError:
                why.add("unreadable")
            if stopped.is_set():
                break
        why |= walk.left_out

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

    async def _in_thread(self, call: Callable[[Event], None]) -> None:
        """Return once the thread has called `call`. If this is cancelled, `call` finds its event set."""
        loop, stopped = get_running_loop(), Event()
        done: Future[None] = loop.create_future()

        def end(error: Exception | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        def job() -> None:
            error = None
            try:
                call(stopped)
            except Exception as raised:
                error = raised
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(end, error)

        self._start_thread()
        self._jobs.put(job)
        try:
            await done
        finally:
            stopped.set()

    def _start_thread(self) -> None:
        if self._thread is None:
            thread = Thread(target=self._work, name="osmosis-artifacts", daemon=True)
            thread.start()
            self._thread = thread

    def _work(self) -> None:
        while True:
            self._jobs.get()()


class _File(NamedTuple):
    """A regular file: `name` in the open folder `folder`."""

    path: str
    stamp: Stamp
    folder: int
    name: str


class _Walk:
    """Yields the regular files in a folder, without following a link. `left_out` says what it did not yield."""

    def __init__(self, top: str) -> None:
        self.left_out: set[WhyLeftOut] = set()
        self._top = top
        self._n = 0

    def __iter__(self) -> Iterator[_File]:
        try:
            top = open_at(self._top, _FOLDER)
        except OSError:
            self.left_out.add("special")
            return
        try:
            yield from self._files(top, "", 1)
        finally:
            close(top)

    def _files(self, folder: int, before: str, depth: int) -> Iterator[_File]:
        try:
            with scandir(folder) as entries:
                for entry in entries:
                    self._n += 1
                    if self._n > MOST_FILES:
                        self.left_out.add("large")
                        return
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except FileNotFoundError:
                        continue  # it is gone already
                    path = f"{before}{entry.name}"
                    if stat.S_ISREG(status.st_mode):
                        yield _File(path, _stamp(status), folder, entry.name)
                    elif not stat.S_ISDIR(status.st_mode):
                        self.left_out.add("special")
                    elif depth == DEEPEST:
                        self.left_out.add("large")
                    else:
                        yield from self._below(folder, entry.name, f"{path}/", depth + 1)
        except OSError:
            self.left_out.add("unreadable")

    def _below(self, folder: int, name: str, before: str, depth: int) -> Iterator[_File]:
        try:
            below = open_at(name, _FOLDER, dir_fd=folder)
        except OSError:
            self.left_out.add("unreadable")
            return
        try:
            yield from self._files(below, before, depth)
        finally:
            close(below)


def _stamp(status: os.stat_result) -> Stamp:
    age_ns = clock_gettime_ns(CLOCK_REALTIME) - status.st_ctime_ns
    return Stamp(status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, age_ns > TICK_NS)
