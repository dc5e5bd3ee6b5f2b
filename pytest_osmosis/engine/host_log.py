"""The hosts' log: what belongs to no run, kept within bounds however much user code writes to its raw descriptors.

Hosts, and all that they start, append to the file on their own; nobody stands between, so that the last words of a
process that dies are there. The engine looks at its size now and then, and takes the middle out.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

HOST_LOG = "host.log"
MOST_BYTES = 8 << 20
"""A log larger than this is cut."""
HEAD_BYTES = 2 << 20
TAIL_BYTES = 2 << 20
"""So much of its beginning and of its end is kept then."""


class HostLog:
    """A file that others append to. `left_out` counts the bytes that were taken out."""

    def __init__(self, path: Path) -> None:
        self.left_out = 0
        self._path = path
        self._marked = 0

    def bound(self) -> None:
        """Take the middle out of a log that is too large; where there is none, or the disk will not, nothing."""
        with contextlib.suppress(OSError):
            if self._path.stat().st_size > MOST_BYTES:
                self._cut()

    def _cut(self) -> None:
        """Whoever appends meanwhile goes on behind it; what comes in this very moment is lost."""
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
