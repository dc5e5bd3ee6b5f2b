"""The guard's own process: `python guarding.py <pid of the process that started it>`, which imports nothing else of us.

A line of its input is "group 12" (end this process group at the end), "forget 12", or "parent 11" (end the process that
started this one as soon as 11 is no longer its parent). At the end of the input, or of the process that started this
one, it ends every group that is left. A process that has ended stays the parent of none, even if nobody reaps it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

LOOK_S = 0.5


def main() -> None:
    starter = int(sys.argv[1])
    tasks = Tasks()
    while os.getppid() == starter and tasks.read(LOOK_S):
        if tasks.parent is not None and parent_of(starter) not in (tasks.parent, None):
            with contextlib.suppress(OSError):
                os.kill(starter, signal.SIGKILL)
            break
    while tasks.read(0.0) and tasks.read_last:  # the starter may have ended before its first line was read
        pass
    for group in tasks.groups:
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)


class Tasks:
    """The tasks on standard input so far. `read_last` is True if the last read found any."""

    def __init__(self) -> None:
        self.parent: int | None = None
        self.groups: set[int] = set()
        self.read_last = False
        self._rest = b""

    def read(self, wait_s: float) -> bool:
        """Read what is there, or comes within `wait_s`; return False at the end of the input."""
        self.read_last = bool(select.select([0], [], [], wait_s)[0])
        if not self.read_last:
            return True
        data = os.read(0, 65536)
        *lines, self._rest = (self._rest + data).split(b"\n")
        for word, number in (line.split() for line in lines):
            if word == b"group":
                self.groups.add(int(number))
            elif word == b"forget":
                self.groups.discard(int(number))
            else:
                self.parent = int(number)
        return bool(data)


def parent_of(pid: int) -> int | None:
    """Return the parent of a process, None if the system does not say."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 (pathlib takes long to import)
            return int(file.read().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return None


if __name__ == "__main__":
    main()
