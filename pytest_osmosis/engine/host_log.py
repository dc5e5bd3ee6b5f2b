"""The log of hosts: output that belongs to no run, of bounded size however much user code writes to descriptor 2.

Hosts, and all processes that they start, append to the file directly, so that it has the last words of a process that
dies. The engine checks its size every turn, and removes the middle of a log that is too large.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

MOST_BYTES = 8 << 20
"""The largest log."""
HEAD_BYTES = 2 << 20
TAIL_BYTES = 2 << 20
"""The parts of a larger log that are kept."""


class HostLog:
    """A file that others append to. `left_out` counts the bytes that were removed."""

    def __init__(self, path: Path) -> None:
        self.left_out = 0
        self._path = path
        self._marked = 0

    def bound(self) -> None:
        """Remove the middle of a log that is too large. Do nothing if there is no log, or the disk does not take it."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._cut()

    def _cut(self) -> None:
        """Replace the middle by a note. Bytes that other processes append during this call may be lost."""
        with self._path.open("r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.seek(end - TAIL_BYTES)
            tail = file.read()
            file.truncate(HEAD_BYTES)
        self.left_out += end - HEAD_BYTES - TAIL_BYTES - self._marked
        mark = f"\n[... {self.left_out:,} bytes left out ...]\n".encode()
        self._marked = len(mark)
        with self._path.open("ab") as file:
            file.write(mark + tail)
