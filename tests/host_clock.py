"""A clock of hosts that a test can put forward while user code holds their event loop.

Hosts are other processes. A module that Python imports when they start reads the time that is added to theirs.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path

ADDED = """
import mmap, os, struct, time

with open(os.environ["TEST_CLOCK"], "r+b") as file:
    added = mmap.mmap(file.fileno(), 0)
real = time.monotonic
time.monotonic = lambda: real() + struct.unpack_from("d", added)[0]
"""


class HostClock:
    """The time that is added to the clocks of hosts with `environ`, 0 at first.

    While code holds the event loop, all that is added counts as its own time. At other times it counts for nobody: the
    host was stopped, as far as it knows.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "sitecustomize.py").write_text(ADDED, encoding="utf-8")
        path = folder / "added"
        path.write_bytes(struct.pack("d", 0.0))
        with path.open("r+b") as file:
            self._added = mmap.mmap(file.fileno(), 0)
        self.environ = {"PYTHONPATH": str(folder), "TEST_CLOCK": str(path)}

    def advance(self, seconds: float) -> None:
        (added,) = struct.unpack_from("d", self._added)
        struct.pack_into("d", self._added, 0, added + seconds)
