"""The output of user code (prints, log records, warnings), separated by run, and the artifacts of runs.

A `ContextVar` holds the run's sink, so tasks and `asyncio.to_thread` inherit it. Output without a run (of a bare
thread, of code at import) goes to the host's own standard error, which is its log file. So does output to the raw file
descriptors.

A host on another machine sends the files in a run's artifacts folder to the engine. A thread of its own reads them, so
that large folders hold up no rollout. Regular files alone are sent: links are not followed, and pipes and devices not
opened. Functions of the standard library are imported by name, so that user code cannot replace them in their modules.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import stat
import sys
import warnings
from asyncio import CancelledError, get_running_loop
from binascii import b2a_base64
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import count
from os import close, fstat, lstat, read, scandir
from os import open as open_at
from threading import Event
from typing import Any, NamedTuple, TextIO

from pytest_osmosis.host.protocol import MOST_BYTES, MOST_FILES, EventSink, Key, LeftOutEvent, WhyLeftOut

HEAD_CHARS = 32 * 1024
TAIL_CHARS = 32 * 1024
"""A run keeps this much of the beginning and the end of each kind of output."""


class TruncatedText:
    """Keeps only the head and the tail of the text that is written to it."""

    def __init__(self) -> None:
        self._head = io.StringIO()
        self._room = HEAD_CHARS
        self._tail = io.StringIO()
        self._left_out = 0

    def write(self, text: str) -> None:
        if self._room:
            self._head.write(text[: self._room])
            text, self._room = text[self._room :], max(0, self._room - len(text))
        self._tail.write(text)
        if self._tail.tell() > 16 * TAIL_CHARS:
            self._cut_tail()

    def text(self) -> str:
        """Return head and tail, with a line between them that says how much is missing."""
        self._cut_tail()
        gap = f"\n[... {self._left_out:,} characters left out ...]\n" if self._left_out else ""
        return self._head.getvalue() + gap + self._tail.getvalue()

    def _cut_tail(self) -> None:
        tail = self._tail.getvalue()
        self._left_out += max(0, len(tail) - TAIL_CHARS)
        self._tail = io.StringIO()
        self._tail.write(tail[-TAIL_CHARS:])


class Sink:
    """The output of one run, by kind: "stdout" (with stderr, in order), "log", "warnings"."""

    def __init__(self) -> None:
        self._kinds: dict[str, TruncatedText] = {}

    def write(self, kind: str, text: str) -> None:
        if text:
            self._kinds.setdefault(kind, TruncatedText()).write(text)

    def take(self) -> dict[str, str]:
        texts = {kind: kept.text() for kind, kept in self._kinds.items()}
        self._kinds = {}
        return texts


CURRENT: ContextVar[Sink | None] = ContextVar("osmosis_sink", default=None)


@contextmanager
def captured() -> Iterator[Sink]:
    """Return a sink for the output of this context and of tasks that are started in it."""
    sink = Sink()
    token = CURRENT.set(sink)
    try:
        yield sink
    finally:
        CURRENT.reset(token)


def _write(kind: str, text: str, fallback: TextIO) -> None:
    sink = CURRENT.get()
    if sink is not None:
        sink.write(kind, text)
    else:
        fallback.write(text)


class _StreamTo(io.TextIOBase):
    """A text stream that leads to the stream `log`. A full disk loses text but raises no error."""

    def __init__(self, log: TextIO) -> None:
        self._log = log

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self._log.encoding

    def fileno(self) -> int:
        """Return the descriptor of the log, for code that passes it to a subprocess."""
        return self._log.fileno()

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._log.flush()


class RoutedStream(_StreamTo):
    """A `sys.stdout` that writes to the current sink, or to the log outside of a run."""

    @property
    def buffer(self) -> io.BufferedIOBase:
        return RoutedBytes(self)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        _write("stdout", text, self._log)
        return len(text)


class RoutedBytes(io.BufferedIOBase):
    """The bytes side of a routed stream."""

    def __init__(self, stream: RoutedStream) -> None:
        self._stream = stream

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._stream.write(bytes(data).decode("utf-8", errors="replace"))
        return len(data)


class RoutedHandler(logging.Handler):
    """A root log handler that writes to the current sink, or to `fallback` outside of a run."""

    def __init__(self, fallback: TextIO) -> None:
        super().__init__()
        self._fallback = fallback
        self.setFormatter(logging.Formatter("%(levelname)-8s %(name)s:%(filename)s:%(lineno)d %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = self.format(record) + "\n"
        except Exception:
            self.handleError(record)
        else:
            _write("log", line, self._fallback)


class RedactedLog(_StreamTo):
    """The process's own log, whose text passes through `redact` first."""

    def __init__(self, log: TextIO, redact: Callable[[str], str]) -> None:
        super().__init__(log)
        self._redact = redact

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._log.write(self._redact(text))
        return len(text)


def install(redact: Callable[[str], str]) -> None:
    """Route stdout, stderr, logging and warnings of this process; `redact` is applied to text for its log."""
    log: Any = RedactedLog(sys.stderr, redact)

    def show(
        message: Any, category: type[Warning], filename: str, lineno: int, file: Any = None, line: str | None = None
    ) -> None:
        _write("warnings", warnings.formatwarning(message, category, filename, lineno, line), log)

    stream: Any = RoutedStream(log)
    sys.stdout = sys.stderr = stream
    logging.getLogger().addHandler(RoutedHandler(log))
    warnings.showwarning = show


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
