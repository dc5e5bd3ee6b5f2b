"""The journal: the events of one eval run, one JSON object a line, append-only, with one writer. It is the authority.

Appended lines reach the operating system at once, so a killed process loses none of them. They are forced to the disk
at most once a second and at the end, which matters only if the machine dies. Readers skip a torn last line, which a
crash in the middle of an append leaves; a bad line elsewhere is an error. The last member of each line, `crc`, is the
CRC-32 of the bytes before it, so that a changed byte is an error too and never another score. Only lines are checked:
of a whole line that is missing, its neighbours know nothing. The writer holds the lock of the run directory
(`RunLock`). The last lines are found from the end, because a journal may hold gigabytes.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from io import FileIO
from pathlib import Path
from typing import IO, Any, Literal
from zlib import crc32

from msgspec.json import Decoder

from pytest_osmosis.errors import JournalError, writing
from pytest_osmosis.files import private
from pytest_osmosis.files.reading import FileFault, open_file, parsed
from pytest_osmosis.formats.codec import ShapeFault
from pytest_osmosis.formats.events import JOURNAL, check_event, decoders_of, frequent_event
from pytest_osmosis.record.run_directory import RunDirectory, RunLock
from pytest_osmosis.record.run_record import FOLDS, Event

SYNC_INTERVAL_S = 1.0
READ_BYTES = 1 << 16
MOST_LINE_BYTES = 1 << 27
_CHECKSUM_KEY = b',"crc":"'
_CHECKSUM = _CHECKSUM_KEY + b'%08x"}\n'
_CHECKSUM_BYTES = len(_CHECKSUM % 0)
_CHECKSUM_AND_MORE = re.compile(_CHECKSUM_KEY + rb'([0-9a-f]{8})"\}.', re.DOTALL)


class Journal:
    """A journal that this process writes. It holds `lock`, that of its run directory, until it is closed."""

    def __init__(self, path: Path, file: FileIO, lock: RunLock) -> None:
        self.path = path
        self.lock = lock
        self._file = file
        self._synced = time.monotonic()

    @classmethod
    def create(cls, path: Path, lock: RunLock | None = None) -> Journal:
        """Create the journal at `path`. Raises `JournalError` if it exists already, or cannot be written.

        Without a `lock` it takes that of the folder, and raises `JournalError` if another process holds it.
        """
        return cls._opened(path, "xb", lock)

    @classmethod
    def reopen(cls, path: Path, lock: RunLock | None = None) -> Journal:
        """Open a journal to append to it, after its last whole line. Raises `JournalError` as `create` does."""
        journal = cls._opened(path, "r+b", lock)
        end = journal._file.seek(end_of_lines(journal._file))
        journal._file.truncate(end)
        journal.lock.note_journal(end)
        return journal

    @classmethod
    def _opened(cls, path: Path, mode: Literal["xb", "r+b"], lock: RunLock | None) -> Journal:
        lock = lock or RunLock.take(RunDirectory(path.parent))
        try:
            with writing(path, JournalError):
                return cls(path, open(path, mode, buffering=0, opener=private.opener), lock)
        except JournalError:
            lock.close()
            raise

    def append(self, lines: bytes) -> None:
        """Append whole lines, each ending in a newline, or none. Raises `JournalError` if the disk takes no more."""
        end = self._file.tell()
        try:
            with writing(self.path, JournalError):
                view = memoryview(lines)
                while view:
                    view = view[self._file.write(view) :]
        except JournalError:
            with contextlib.suppress(OSError):
                self._file.truncate(self._file.seek(end))
            raise
        if time.monotonic() - self._synced > SYNC_INTERVAL_S:
            self.sync()

    def sync(self) -> None:
        """Force appended lines to the disk. Raises `JournalError` if that fails."""
        with writing(self.path, JournalError):
            os.fsync(self._file.fileno())
        self._synced = time.monotonic()

    def close(self) -> None:
        """Force what was appended to the disk and let go of the lock. Idempotent. Raises `JournalError`."""
        try:
            if not self._file.closed:
                self.sync()
        finally:
            self._file.close()
            self.lock.close()


def encode(event: Event) -> bytes:
    """Return the line of an event: pure ASCII, strict JSON, with its checksum."""
    return with_checksum(json.dumps(event, separators=(",", ":"), allow_nan=False).encode("ascii"))


def with_checksum(line: bytes) -> bytes:
    """Return the line of an event that is JSON already: the same bytes, and their checksum as the last member."""
    members = line.rpartition(b"}")[0]
    return members + _CHECKSUM % crc32(members)


def checked(line: bytes, where: str) -> bytes:
    """Return the JSON of a line without its checksum. Raises `JournalError` unless the line ends with the right one."""
    members, checksum = line[:-_CHECKSUM_BYTES], line[-_CHECKSUM_BYTES:]
    if checksum != _CHECKSUM % crc32(members):
        is_there = checksum.startswith(_CHECKSUM_KEY)
        fault = "its checksum (crc) does not match its bytes" if is_there else "it does not end with a checksum (crc)"
        raise _bad_line(where, fault, line)
    return members + b"}"


def _begins_with_a_line(torn: bytes) -> bool:
    """Return True if a last line that seems torn is a whole one and more: the newline between them was changed."""
    begin = crc = 0
    for found in _CHECKSUM_AND_MORE.finditer(torn):
        crc, begin = crc32(torn[begin : found.start()], crc), found.start()
        if crc == int(found[1], 16):
            return True
    return False


def replay(path: Path) -> Iterator[Event]:
    """Return the events of a journal in order, without a torn last line.

    Raises `JournalError` for any other bad line, and for a file that cannot be read.
    """
    for event in replay_with_positions(path):
        del event[POSITION]
        yield event


POSITION = "position"
"""The key of an event's position in the journal, for `event_at`."""


def replay_with_positions(path: Path) -> Iterator[dict[str, Any]]:
    """Return the events of `replay`, each with its position."""
    return (event for event, _ in events_from(path, 0, 1))


def events_from(path: Path, position: int, number: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the events from a position on, which is the begin of line `number`, each with the position of its end.

    Each event holds its own, too. Raises `JournalError` as `replay` does.
    """
    name = str(path)
    with _opened(path) as file:
        file.seek(position)
        while (line := _line(file, where := f"{name}:{number}")) is not None:
            event = _event(line, where)
            event[POSITION] = position  # in place: there are many events, and copying is slow
            position, number = position + len(line), number + 1
            yield event, position


def event_at(path: Path, position: int) -> Event:
    """Return the event that begins at a position in a journal."""
    with EventReader(path) as reader:
        return reader.at(position)


class EventReader:
    """Reads events of a journal by their positions, many of them, through one open file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = _opened(path)

    def __enter__(self) -> EventReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def at(self, position: int) -> Event:
        """Return the event that begins at a position. Raises `JournalError`."""
        return _event(*self._line(position))

    def json_at(self, position: int) -> bytes:
        """Return the JSON of the event that begins at a position, which is not parsed. Raises `JournalError`."""
        return checked(*self._line(position))

    def _line(self, position: int) -> tuple[bytes, str]:
        where = f"{self._path}, byte {position}"
        self._file.seek(position)
        return _line(self._file, where) or b"", where


def _line(file: IO[bytes], where: str) -> bytes | None:
    """Return the next whole line, None at the end or before a torn line.

    Raises `JournalError` if it is too long, and for a last line with another byte in place of its newline.
    """
    try:
        line = file.readline(MOST_LINE_BYTES)
        if line.endswith(b"\n"):
            return line
        if len(line) < MOST_LINE_BYTES:
            if _begins_with_a_line(line):
                raise _bad_line(where, "its newline was changed", line)
            return None
        while rest := file.read(READ_BYTES):
            if b"\n" in rest:
                raise _bad_line(where, f"it is longer than {MOST_LINE_BYTES:,} bytes", line)
    except OSError as error:
        raise JournalError(f"{where}: cannot be read: {error.strerror}") from error
    return None


def _opened(path: Path) -> IO[bytes]:
    try:
        return open_file(path)
    except FileFault as fault:
        raise JournalError(f"{path}: {fault}") from fault


def _event(line: bytes, where: str) -> dict[str, Any]:
    try:
        whole = checked(line, where)
        if whole.isascii() and b'"crc"' not in whole and (found := frequent_event(whole, _frequent())) is not None:
            return found
        event: dict[str, Any] = parsed(whole.decode("ascii"))
        if "crc" in event:
            raise ShapeFault("it has two checksums (crc)")
        check_event(event)
    except ValueError as error:
        raise _bad_line(where, str(error), line) from error
    return event


@functools.cache
def _frequent() -> Mapping[bytes, Decoder[Any]]:
    return decoders_of(JOURNAL)


_OF_RUN = tuple(b'{"ev":"%s"' % kind.encode() for kind in FOLDS)


def _bad_line(where: str, fault: str, line: bytes) -> JournalError:
    """Return the error about a line. Without one about a session, lines about runs would say something else."""
    is_ours = line.startswith(b'{"ev":"') or line[-_CHECKSUM_BYTES:].startswith(_CHECKSUM_KEY)
    fix = "delete that line to read the others"
    if is_ours and not line.startswith(_OF_RUN):
        fix = "restore it or begin a new eval run, because without that line the others would be read wrongly"
    return JournalError(f"{where}: not a journal line: {fault}; the file was damaged; {fix}")


_WITH_MOMENTS = frozenset({"began", "start", "rollout", "ended"})
"""The kinds of events whose moments are checked when a journal is read. Those of other kinds may be anything."""


class SessionTimes:
    """The time of each session, from its beginning to the last moment that it noted, without that between sessions."""

    def __init__(self) -> None:
        self._spans: list[list[str]] = []

    def apply(self, event: Event) -> None:
        """Take the moment of an event, if it has one."""
        at = event.get("at")
        if at is None or event["ev"] not in _WITH_MOMENTS:
            return
        if event["ev"] == "began" or not self._spans:
            self._spans.append([at, at])
        else:
            self._spans[-1][1] = at

    @property
    def n_sessions(self) -> int:
        return len(self._spans)

    @property
    def each_ms(self) -> list[float]:
        """The time of each session."""
        spans = (map(datetime.fromisoformat, span) for span in self._spans)
        return [max(0.0, 1000 * (end - begin).total_seconds()) for begin, end in spans]


# -- last lines -------------------------------------------------------------------------------------------


PIECE_BYTES = 1 << 16
LARGEST_PIECE_BYTES = 1 << 22
MOST_BYTES = 1 << 16
"""At most this much of a line is returned."""


def end_of_lines(file: IO[bytes]) -> int:
    """Return the position after the last whole line."""
    return _last(file, (b"\n",), file.seek(0, os.SEEK_END)) + 1


def last_line(file: IO[bytes]) -> bytes:
    """Return the beginning of the last whole line, empty if there is none."""
    end = end_of_lines(file)
    return b"" if end == 0 else _line_at(file, _last(file, (b"\n",), end - 1) + 1)


def last_line_with(file: IO[bytes], beginnings: Sequence[bytes]) -> bytes:
    """Return the beginning of the last whole line that begins with one of `beginnings`, empty if none does."""
    end = end_of_lines(file)
    found = _last(file, [b"\n" + each for each in beginnings], end)
    if found >= 0:
        return _line_at(file, found + 1)
    first = _line_at(file, 0)
    return first if first.startswith(tuple(beginnings)) and first.endswith(b"\n") else b""


def _line_at(file: IO[bytes], position: int) -> bytes:
    file.seek(position)
    return file.readline(MOST_BYTES)


def _last(file: IO[bytes], wanted: Sequence[bytes], end: int) -> int:
    """Return the position of the last of `wanted` that ends before `end`, -1 if there is none."""
    overlap = max(map(len, wanted)) - 1
    size, begin, after = PIECE_BYTES, end, b""
    while begin > 0:
        size, before = min(size * 2, LARGEST_PIECE_BYTES), begin
        begin = max(0, begin - size)
        file.seek(begin)
        piece = file.read(before - begin) + after
        found = max(piece.rfind(each) for each in wanted)
        if found >= 0:
            return begin + found
        after = piece[:overlap]
    return -1
