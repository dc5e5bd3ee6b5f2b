"""Run directories: the files that one eval run leaves behind, and the lock by which one process at a time writes them.

The file `lock` names its holder, and the holder keeps a lock of the operating system (flock) on it, which ends with the
process, however that ends. A holder that lets go removes the file. One that is left belongs to a process that was
killed, and is taken over. Where the file system has no such locks, no eval run is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal
from weakref import WeakSet

from msgspec import Struct
from msgspec.structs import asdict, replace

from pytest_osmosis.errors import JournalError, writing
from pytest_osmosis.files.reading import parsed
from pytest_osmosis.formats.codec import Count, Moment, Positive, decode
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import moment

RUNS = Path(".osmosis", "runs")
"""The folder of run directories in a workspace, unless `[output] dir` names another."""
ALL_RESULTS = "*/results*.json"
"""The pattern of all results files in a folder of run directories, replaced and partial ones included."""


class RunDirectory:
    """The directory of one eval run, named by eval, start time and a random suffix.

    - `manifest`: the config, options and plan of the eval run
    - `journal`: the events of the runs
    - `rows`: the rows of a verifiers environment, which only its code knows
    - `exchanges`: the exchanges with models (`cassettes`), if the command records them
    - `partial_results`: the results of a rescoring that was partial or stopped, and so does not replace `results`
    - `lock`: the process that writes the eval run (`RunLock`)
    - `submission`: the request of `pytest-osmosis submit`, if that started the eval run
    - `session_log`: the output of pytest in an eval run that was submitted
    - `stop_request`: a file that lets the engine begin no further run, written by `pytest-osmosis runs stop`
    - `host_log`: the output of user code that belongs to no run
    - `artifacts`: the folder for files that user code writes
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.manifest = path / "manifest.json"
        self.journal = path / "journal.jsonl"
        self.rows = path / "rows.jsonl"
        self.exchanges = path / "exchanges.jsonl"
        self.results = path / "results.json"
        self.partial_results = path / "results.partial.json"
        self.lock = path / "lock"
        self.submission = path / "submitted.json"
        self.session_log = path / "session.log"
        self.stop_request = path / "stop"
        self.host_log = path / "host.log"
        self.artifacts = path / "artifacts"


# -- the lock ----------------------------------------------------------------------------------------------

MOST_BYTES = 4096
PATIENCE_S = 0.5
"""A lock that another process only looks at is free again after much less time."""
LOOK_S = 0.02


class RunLock:
    """The lock on a run directory, held by this process until it is closed.

    `file` is the open file with the lock, for a process that inherits it. Processes that this one forks do not hold the
    lock.
    """

    def __init__(self, path: Path, holder: Holder, file: int) -> None:
        self.holder = holder
        self._path = path
        self.file = file
        self._is_held = True
        _HELD.add(self)

    @classmethod
    def take(cls, directory: RunDirectory, purpose: Purpose = "rollouts") -> RunLock:
        """Take the lock of a run directory, which must exist; the inherited one, if there is one.

        A request to stop is removed unless the lock was inherited, because it was made to an earlier holder.
        Raises `JournalError` if another process holds it, with its id, its machine and since when, if the file system
        has no locks, or if the lock cannot be written.
        """
        path = directory.lock
        holder = replace(Holder.process(os.getpid(), purpose), journal_bytes=size_of(directory.journal))
        with writing(shown(path), JournalError):
            if (file := _inherited(path)) is not None:
                _write(file, holder)
                return cls(path, holder, file)
            file = _taken(directory, holder)
            with contextlib.suppress(OSError):
                directory.stop_request.unlink()
            return cls(path, holder, file)

    @classmethod
    def inherit(cls, file: int) -> None:
        """Let the next `take` of a directory use the lock on `file`, which another process took and handed down."""
        os.set_inheritable(file, False)
        _INHERITED.add(file)

    def note_journal(self, n_bytes: int) -> None:
        """Write down the size of the journal before this process appends to it. Raises `JournalError`."""
        self.holder = replace(self.holder, journal_bytes=n_bytes)
        with writing(shown(self._path), JournalError):
            _write(self.file, self.holder)

    def close(self) -> None:
        """Let go of the lock. Idempotent."""
        if self._is_held:
            with contextlib.suppress(OSError):  # the disk is gone; the next process takes over
                if _is_at(self.file, self._path):
                    self._path.unlink()
            self.forget()

    def forget(self) -> None:
        """Close the file alone, in a forked process, which shares it with the holder."""
        if self._is_held:
            self._is_held = False
            os.close(self.file)


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
        return None if _flock(file, fcntl.LOCK_SH) else _read(file) or UNKNOWN
    except OSError:
        return None
    finally:
        os.close(file)


def held_text(directory: RunDirectory, holder: Holder) -> str:
    """Return who writes an eval run, and what to do about it."""
    since = f" since {moment(holder.since)}" if holder.since else ""
    what = "has been writing it" if holder.purpose == "rollouts" else "has been scoring its rollouts"
    fix = f'wait until it ends, or stop it with "pytest-osmosis runs stop {directory.name}"'
    return f"{holder} {what}{since}, and one process at a time may; {fix}"


# -- taking ------------------------------------------------------------------------------------------------


def _taken(directory: RunDirectory, holder: Holder) -> int:
    """Take the lock. Return its open file.

    Raises `JournalError` if another process holds it or the file system has no locks, and `OSError` if the lock cannot
    be written.
    """
    path = directory.lock
    give_up_at = time.monotonic() + PATIENCE_S
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o600)
        try:
            if _locked(directory, file):
                if _is_at(file, path):  # else its holder removed it meanwhile
                    _write(file, holder)
                    kept, file = file, -1
                    return kept
            elif time.monotonic() > give_up_at:
                raise JournalError(f"run {directory.name}: {held_text(directory, _read(file) or UNKNOWN)}")
        finally:
            if file >= 0:
                os.close(file)
        time.sleep(LOOK_S)


def _locked(directory: RunDirectory, file: int) -> bool:
    try:
        return _flock(file, fcntl.LOCK_EX)
    except OSError as error:
        what = f"{shown(directory.path)} is on a file system without locks ({error.strerror})"
        why = "which keep two processes from writing an eval run at once"
        fix = "keep runs in another folder, with --osmosis-set output.dir=FOLDER or [output] dir"
        raise JournalError(f"run {directory.name}: {what}, {why}; {fix}") from error


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


def size_of(path: Path) -> int:
    """Return the size of a file, 0 if there is none."""
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _flock(file: int, kind: int) -> bool:
    """Lock a file, and return False if another process holds it. Raises `OSError` where there are no locks."""
    try:
        fcntl.flock(file, kind | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _is_at(file: int, path: Path) -> bool:
    """Return True if the open file is still the one at `path`."""
    try:
        return os.path.samestat(os.fstat(file), path.stat())
    except FileNotFoundError:
        return False


def _read(file: int) -> Holder | None:
    """Return the holder that the first line names, None if it names none."""
    try:
        return decode(parsed(os.pread(file, MOST_BYTES, 0).partition(b"\n")[0].decode("ascii")), Holder)
    except ValueError:
        return None


def _write(file: int, holder: Holder) -> None:
    """Replace the content of a file, so that at each moment its first line names a holder, if it did."""
    line = json.dumps(asdict(holder)).encode("ascii") + b"\n"
    os.pwrite(file, line, 0)
    os.ftruncate(file, len(line))


# -- forks -------------------------------------------------------------------------------------------------

_HELD: WeakSet[RunLock] = WeakSet()


def _forget_all() -> None:
    for lock in list(_HELD):
        lock.forget()


os.register_at_fork(after_in_child=_forget_all)


# -- the process that writes an eval run, and how it is told from others ------------------------------------


Purpose = Literal["rollouts", "scoring"]
"""The reason why a process writes an eval run: to roll out, or to score stored rollouts again."""


class Holder(Struct, frozen=True):
    """A process that writes an eval run: its id, its machine, and since when it does (UTC, ISO 8601).

    `started` and `place` tell it from a later process with the same id: the time when it began, in the units of the
    system, and the boot and the namespace that its id belongs to; "" where the system tells neither. `pid` is None if
    its name cannot be read. `journal_bytes` is the size of the journal before it writes to it.
    """

    pid: Positive | None
    machine: str
    since: Moment
    purpose: Purpose = "rollouts"
    started: str = ""
    place: str = ""
    journal_bytes: Count = 0

    @classmethod
    def process(cls, pid: int, purpose: Purpose = "rollouts") -> Holder:
        """Return a process of this machine that runs now."""
        since = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(pid, socket.gethostname(), since, purpose, _started(pid), _place())

    @property
    def is_here(self) -> bool:
        """True if its id is that of a process on this machine."""
        return self.pid is not None and self.machine == socket.gethostname() and self.place == _place()

    @property
    def is_alive(self) -> bool:
        """True if its process is known to run."""
        return self.pid is not None and self.is_here and _is_process(self.pid) and self.started == _started(self.pid)

    def __str__(self) -> str:
        return "another process" if self.pid is None else f"process {self.pid} on {self.machine}"


UNKNOWN = Holder(None, "", "")
"""A process that locked the file and has not written its name yet."""


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def _started(pid: int) -> str:
    """Return when a process began, in ticks since the boot; "" where the system does not tell, or it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return ""
    return stat.rpartition(b")")[2].split()[19].decode("ascii")  # after the name, which may hold anything


@cache
def _place() -> str:
    """Return the boot of this machine and the namespace of process ids, "" where the system tells neither."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
