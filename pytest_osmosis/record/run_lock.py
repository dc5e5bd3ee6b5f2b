"""The lock of a run directory: one process at a time writes an eval run.

The file `lock` names its holder, and the holder keeps a lock of the operating system (flock) on it, which ends with the
process, however that ends. Where the file system has no such locks, the file alone decides: a holder on this machine
whose process is gone has ended, and one on another machine counts as alive. A holder that lets go removes the file. One
that is left belongs to a process that was killed, and is taken over.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal
from weakref import WeakSet

from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.lock_holder import UNKNOWN, Holder, Purpose
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.numbers import moment
from pytest_osmosis.text.paths import shown

MOST_BYTES = 4096
PATIENCE_S = 0.5
"""A lock that another process only looks at is free again after much less time."""
LOOK_S = 0.02
YOUNG_S = 10.0
"""A file that names no holder is being written, unless it is older than this."""


class RunLock:
    """The lock on a run directory, held by this process until it is closed.

    `taken_over_from` is the process that held it before, if that one was killed. Processes that this one forks do not
    hold the lock.
    """

    def __init__(self, path: Path, holder: Holder, file: int | None, taken_over_from: Holder | None) -> None:
        self.holder = holder
        self.taken_over_from = taken_over_from
        self._path = path
        self._file = file
        self._is_held = True
        _HELD.add(self)
        _forget_in_forks()

    @classmethod
    def take(cls, directory: RunDirectory, purpose: Purpose = "rollouts") -> RunLock:
        """Take the lock of a run directory, which must exist; the inherited one, if there is one.

        A request to stop is removed unless the lock was inherited, because it was made to an earlier holder.
        Raises `JournalError` if another process holds it, with its id, its machine and since when, or if the lock
        cannot be written.
        """
        path = directory.lock
        holder = replace(Holder.this_process(purpose), journal_bytes=_size(directory.journal))
        try:
            if (file := _inherited(path)) is not None:
                _write(file, holder)
                return cls(path, holder, file, None)
            lock = cls(path, *_taken(path, holder))
            with contextlib.suppress(OSError):
                directory.stop_request.unlink()
            return lock
        except _HeldError as held:
            raise JournalError(f"run {directory.name}: {held_text(directory, held.holder)}") from None
        except OSError as error:
            raise JournalError(f"{shown(path)}: cannot be written: {error.strerror}") from error

    @classmethod
    def inherit(cls, file: int) -> None:
        """Let the next `take` of a directory use the lock on `file`, which another process took and handed down."""
        os.set_inheritable(file, False)
        _INHERITED.add(file)

    @property
    def file(self) -> int | None:
        """The open file with the lock, for a process that inherits it; None where the file system has no locks."""
        return self._file

    @property
    def notice(self) -> str | None:
        """A sentence on the process from which the lock was taken over, None if it was free."""
        before = self.taken_over_from
        if before is None:
            return None
        return f"run {self._path.parent.name}: {before} wrote it since {moment(before.since)} and was killed"

    def note_journal(self, n_bytes: int) -> None:
        """Write down the size of the journal before this process appends to it. Raises `JournalError`."""
        self.holder = replace(self.holder, journal_bytes=n_bytes)
        try:
            if self._file is None:
                _replace(self._path, self.holder)
            else:
                _write(self._file, self.holder)
        except OSError as error:
            raise JournalError(f"{shown(self._path)}: cannot be written: {error.strerror}") from error

    def close(self) -> None:
        """Let go of the lock. Idempotent."""
        if self._is_held:
            with contextlib.suppress(OSError):  # the disk is gone; the next process takes over
                if (named := _named(self._path)) is not None and named.token == self.holder.token:
                    self._path.unlink()
            self.forget()

    def forget(self) -> None:
        """Close the file alone, in a forked process, which shares it with the holder."""
        self._is_held = False
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)


def holder_of(directory: RunDirectory) -> Holder | None:
    """Return the process that writes an eval run now, None if none does. Nothing on the disk changes.

    It is none either if this process has inherited the lock, and is about to take it.
    """
    if any(_is_at(file, directory.lock) for file in _INHERITED):
        return None
    try:
        file = os.open(directory.lock, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        return _holder(file)
    except OSError:
        return None
    finally:
        os.close(file)


def _holder(file: int) -> Holder | None:
    match _flock(file, fcntl.LOCK_SH):
        case "held":
            return _read(file) or UNKNOWN
        case "unsupported":
            named = _read(file)
            return None if named is None or named.has_ended else named
        case "taken":
            named = _read(file)
            return named if named is not None and _holds_without_flock(named) else None


def held_text(directory: RunDirectory, holder: Holder) -> str:
    """Return who writes an eval run, and what to do about it."""
    since = f" since {moment(holder.since)}" if holder.since else ""
    what = "has been writing it" if holder.purpose == "rollouts" else "has been scoring its rollouts"
    fix = f'wait until it ends, or stop it with "pytest-osmosis runs stop {directory.name}"'
    if holder.pid is not None and not holder.is_here:
        fix += f"; if it no longer runs, delete {shown(directory.lock)}"
    return f"{holder} {what}{since}, and one process at a time may; {fix}"


# -- taking ------------------------------------------------------------------------------------------------


class _HeldError(Exception):
    def __init__(self, holder: Holder) -> None:
        super().__init__(str(holder))
        self.holder = holder


def _taken(path: Path, holder: Holder) -> tuple[Holder, int | None, Holder | None]:
    """Take the lock. Return its holder, its open file or None where the file alone decides, and the dead holder before.

    Raises `_HeldError`, and `OSError` if the lock cannot be written.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            match _flock(file, fcntl.LOCK_EX):
                case "unsupported":
                    holder = replace(holder, has_flock=False)
                    return holder, None, _taken_by_file(path, holder)
                case "held" if time.monotonic() > give_up_at:
                    raise _HeldError(_read(file) or UNKNOWN)
                case "taken" if _is_at(file, path):  # else its holder removed it meanwhile
                    before = _read(file)
                    if before is not None and _holds_without_flock(before):
                        raise _HeldError(before)
                    _write(file, holder)
                    kept, file = file, -1
                    return holder, kept, before
        finally:
            if file >= 0:
                os.close(file)
        time.sleep(LOOK_S)


def _holds_without_flock(holder: Holder) -> bool:
    """Return True for a holder of a file that is not locked: its file system has no locks, or only seems to."""
    return holder.is_alive or not (holder.has_flock or holder.has_ended)


def _taken_by_file(path: Path, holder: Holder) -> Holder | None:
    """Take the lock without the system's help, and return the dead holder before.

    Whoever creates the file `lock.after-TOKEN` succeeds the holder with that token, and only it may replace `lock`. It
    removes its own file last, so one who comes later finds another token in `lock`.
    """
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        before = _named(path)
        markers = _succeed(path, before, holder)
        try:
            if _named(path) == before:
                _replace(path, holder)
                return before
        finally:
            for marker in reversed(markers):
                marker.unlink(missing_ok=True)
        if time.monotonic() > give_up_at:
            raise _HeldError(_named(path) or UNKNOWN)
        time.sleep(LOOK_S)


def _succeed(path: Path, before: Holder | None, holder: Holder) -> list[Path]:
    """Create the file that says who succeeds a dead holder. Return it, and those of successors that died at it.

    Raises `_HeldError` if a holder or a successor has not ended.
    """
    markers = list[Path]()
    while True:
        if before is not None and not before.has_ended:
            raise _HeldError(before)
        markers.append(path.with_name(f"{path.name}.after-{'nobody' if before is None else before.token}"))
        with contextlib.suppress(FileExistsError):
            file = os.open(markers[-1], os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                _write(file, holder)
            finally:
                os.close(file)
            return markers
        before = _named(markers[-1])
        if before is None:
            if time.time() - markers[-1].stat().st_mtime < YOUNG_S:
                raise _HeldError(UNKNOWN)
            markers.pop().unlink(missing_ok=True)


def _replace(path: Path, holder: Holder) -> None:
    new = path.with_name(f"{path.name}.{holder.token}")
    new.touch(0o600)
    new.write_bytes(holder.to_line())
    new.replace(path)


# -- inheriting --------------------------------------------------------------------------------------------

_INHERITED: set[int] = set()
"""Files with locks that this process inherited and has not used yet."""


def _inherited(path: Path) -> int | None:
    """Return the inherited file with the lock at `path`, once; None if there is none."""
    file = next((file for file in _INHERITED if _is_at(file, path)), None)
    if file is not None:
        _INHERITED.remove(file)
    return file


# -- files -------------------------------------------------------------------------------------------------


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _flock(file: int, kind: int) -> Literal["taken", "held", "unsupported"]:
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return "held"
    except OSError:
        return "unsupported"
    return "taken"


def _is_at(file: int, path: Path) -> bool:
    """Return True if the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> Holder | None:
    """Return the holder that the first line names, None if it names none."""
    return Holder.of_line(os.pread(file, MOST_BYTES, 0).partition(b"\n")[0])


def _named(path: Path) -> Holder | None:
    """Return the holder that a file names, None for a file that is missing or names none."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        return _read(file)
    finally:
        os.close(file)


def _write(file: int, holder: Holder) -> None:
    """Replace the content of a file, so that at each moment its first line names a holder, if it did."""
    line = holder.to_line()
    os.pwrite(file, line, 0)
    os.ftruncate(file, len(line))


# -- forks -------------------------------------------------------------------------------------------------

_HELD: WeakSet[RunLock] = WeakSet()
"""The locks of this process."""


@cache
def _forget_in_forks() -> None:
    os.register_at_fork(after_in_child=_forget_all)


def _forget_all() -> None:
    for lock in list(_HELD):
        lock.forget()
