"""A child process that leads a session of its own, and all processes that it started."""

from __future__ import annotations

import contextlib
import os
import signal
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from psutil import Process

ROUNDS = 10
"""Searches for processes that were started while others were ended."""


class ProcessUsage(NamedTuple):
    """The processor time and the memory that processes use, how many they are, and True if one could run now."""

    cpu_s: float
    memory_mb: float
    processes: int
    runs: bool


def usage(leader: int) -> ProcessUsage:
    """Return what a process, children of it that ended, and its descendants use: nothing if it ended itself."""
    import psutil

    found = []
    for process in _tree(leader):
        with contextlib.suppress(psutil.Error), process.oneshot():
            if (status := process.status()) != psutil.STATUS_ZOMBIE:
                cpu_s = sum(process.cpu_times()[:4])  # user, system, and both of the children
                found.append((cpu_s, process.memory_info().rss / 2**20, status == psutil.STATUS_RUNNING))
    cpu_s, memory_mb, running = map(sum, zip(*found, strict=True)) if found else (0.0, 0.0, 0)
    return ProcessUsage(cpu_s, memory_mb, len(found), bool(running))


def end(leader: int) -> None:
    """End a process that was not yet waited for, its group, its session and its descendants."""
    import psutil

    found, ended = {*_tree(leader)}, set[psutil.Process]()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(ROUNDS):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        ended |= found
        found = {each for each in psutil.process_iter() if _is_in_session(each.pid, leader)} - ended
        if not found:
            return


def _tree(leader: int) -> list[Process]:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(leader)
        return [process, *process.children(recursive=True)]
    return []


def _is_in_session(pid: int, leader: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == leader
    return False
