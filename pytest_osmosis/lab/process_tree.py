"""A child process that leads a session of its own, and all processes that it started.

Linux tells about them in /proc. Elsewhere their use of the machine is not known, and only their group is ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20 if hasattr(os, "sysconf") else 0.0
ROUNDS = 10
"""Searches for processes that were started while others were ended."""


class ProcessUsage(NamedTuple):
    """The processor time and the memory that processes use, how many they are, and True if one could run now."""

    cpu_s: float
    memory_mb: float
    processes: int
    runs: bool = False


class _Process(NamedTuple):
    """A line of /proc/<pid>/stat. `cpu_s` includes children that ended."""

    pid: int
    parent: int
    session: int
    cpu_s: float
    memory_mb: float
    runs: bool


def usage(leader: int) -> ProcessUsage | None:
    """Return what a process and its descendants use, None if that is not known."""
    found = [process for pid in (leader, *descendants(leader)) if (process := _process(pid)) is not None]
    if not found:
        return None
    cpu_s, memory_mb = sum(each.cpu_s for each in found), sum(each.memory_mb for each in found)
    return ProcessUsage(cpu_s, memory_mb, len(found), any(each.runs for each in found))


def end(leader: int) -> None:
    """End a process that was not yet waited for, its group, its session and its descendants."""
    found = {*descendants(leader)}
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(ROUNDS):
        if not found:
            return
        for pid in found:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        found = {pid for pid in _session(leader) if pid not in found}


def has_ended(leader: int) -> bool:
    """Return True if a child process has ended. It stays unreaped, so that its id belongs to no other."""
    with contextlib.suppress(ChildProcessError):
        return os.waitid(os.P_PID, leader, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    return True


def descendants(pid: int) -> Iterator[int]:
    try:
        tasks = list(PROC.glob(f"{pid}/task/*/children"))
    except OSError:
        return  # the process ended while its threads were listed
    for children in tasks:
        try:
            started = [int(child) for child in children.read_text().split()]
        except OSError:
            continue  # the thread ended
        for child in started:
            yield child
            yield from descendants(child)


def _session(leader: int) -> Iterator[int]:
    for folder in PROC.glob("[0-9]*"):
        process = _process(int(folder.name))
        if process is not None and process.session == leader and process.pid != leader:
            yield process.pid


def _process(pid: int) -> _Process | None:
    try:
        fields = (PROC / str(pid) / "stat").read_bytes().rpartition(b") ")[2].split()
    except OSError:
        return None  # it ended
    state, parent, _, session = fields[:4]
    if state == b"Z":
        return None
    cpu_s = sum(map(int, fields[11:15])) / TICKS_PER_S
    return _Process(pid, int(parent), int(session), cpu_s, int(fields[21]) * PAGE_MB, state == b"R")
