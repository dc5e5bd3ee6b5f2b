"""The guard's own process. Its argument is the pid of the process that started it, and it imports nothing else of us.

A line of its input is "group 12" (end this process group at the end), 'path "/x"' (remove this file or folder at the
end), or "parent 11" (end the process that started this one as soon as 11 is no longer its parent). "-group 12" takes
"group 12" back. At the end of the input, or of the process that started this one, it ends every group that is left,
then removes the paths. A process that has ended stays the parent of none, even if nobody reaps it.

It is no child of its starter but a grandchild, as others may end all children of a process just before they end it: Ray
does so with its workers. The child between them does nothing, and ends with its starter. While it lives nobody adopts
the guard, who might end what it did not start (a node of Ray can be set so).

It starts while a host does, on machines with few cores: what only its end needs is imported there.
"""

from __future__ import annotations

import os
import select
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

LOOK_S = 0.5
REMOVALS = 20


def main() -> None:
    starter, child = int(sys.argv[1]), os.getpid()
    ends, open_as_long_as_this_runs = os.pipe()
    if os.fork():
        os.close(open_as_long_as_this_runs)
        wait_for_end(starter, ends)
        os._exit(0)
    tasks = Tasks()
    while (os.getppid() == child or is_running(starter)) and tasks.read(LOOK_S):
        parents = tasks.of[b"parent"]
        if parents and parent_of(starter) not in (b"", *parents):
            end(os.kill, starter)
            break
    while tasks.read(0.0) and tasks.read_last:  # the starter may have ended before its first line was read
        pass
    for group in map(int, tasks.of[b"group"]):
        end(os.killpg, group)
    if tasks.of[b"path"]:
        import json

        for path in sorted(map(json.loads, tasks.of[b"path"])):
            remove(path)


def wait_for_end(starter: int, ends: int) -> None:
    """Wait until the starter has ended, or the guard, with which the pipe `ends`."""
    os.close(0)
    while os.getppid() == starter and not select.select([ends], [], [], LOOK_S)[0]:
        pass


def end(kill: Callable[[int, int], None], pid: int) -> None:
    """Kill a process, or a process group, if there is one."""
    import contextlib
    import signal

    with contextlib.suppress(OSError):
        kill(pid, signal.SIGKILL)


def remove(path: str) -> None:
    """Remove a file or folder, as far as possible; and the folder around it if that is git's for worktrees."""
    import contextlib
    import shutil

    for _ in range(REMOVALS):  # processes that are being killed may still write into it
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            break
        for folder, names, _ in os.walk(path):  # user code may have locked its folders
            for name in names:
                with contextlib.suppress(OSError):
                    os.chmod(os.path.join(folder, name), 0o700)  # noqa: PTH101, PTH118
        time.sleep(0.05)
    parent = os.path.dirname(path)  # noqa: PTH120
    if os.path.basename(parent) == "worktrees":  # noqa: PTH119
        with contextlib.suppress(OSError):
            os.rmdir(parent)  # noqa: PTH106 (fails if it is not empty)


class Tasks:
    """The tasks on standard input so far, by their first word. `read_last` is True if the last read found any."""

    def __init__(self) -> None:
        self.of: dict[bytes, set[bytes]] = {b"group": set(), b"path": set(), b"parent": set()}
        self.read_last = False
        self._rest = b""

    def read(self, wait_s: float) -> bool:
        """Read what is there, or comes within `wait_s`; return False at the end of the input."""
        self.read_last = bool(select.select([0], [], [], wait_s)[0])
        if not self.read_last:
            return True
        data = os.read(0, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            word, value = line.removeprefix(b"-").split(b" ", 1)
            (self.of[word].discard if line.startswith(b"-") else self.of[word].add)(value)
        return bool(data)


def is_running(pid: int) -> bool:
    """Return True if a process has not ended. One that nobody has reaped yet has."""
    return status_of(pid)[0] not in (b"", b"Z")


def parent_of(pid: int) -> bytes:
    """Return the parent of a process, b"" if the system does not say."""
    return status_of(pid)[1]


def status_of(pid: int) -> tuple[bytes, bytes]:
    """Return the state of a process and its parent, as Linux writes them; empty if the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (pathlib takes long to import)
            state, parent, *_ = file.read().rpartition(b")")[2].split()
    except (OSError, ValueError):
        return b"", b""
    return state, parent
