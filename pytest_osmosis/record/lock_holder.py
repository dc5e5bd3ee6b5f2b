"""The process that writes an eval run, and how it is told from others."""

from __future__ import annotations

import json
import os
import socket
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Literal

from pytest_osmosis.files.strict_json import parsed
from pytest_osmosis.formats.codec import decode
from pytest_osmosis.formats.kinds import Count, Moment, Positive

Purpose = Literal["rollouts", "scoring"]
"""The reason why a process writes an eval run: to roll out, or to score stored rollouts again."""


@dataclass(frozen=True, slots=True)
class Holder:
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
    def this_process(cls, purpose: Purpose) -> Holder:
        return cls.process(os.getpid(), purpose)

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

    def to_line(self) -> bytes:
        return json.dumps(asdict(self)).encode("ascii") + b"\n"

    @classmethod
    def of_line(cls, raw: bytes) -> Holder | None:
        """Return the holder that a line names, None for a line that names none."""
        try:
            return decode(parsed(raw.decode("ascii")), Holder)
        except ValueError:
            return None

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
        return True
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
