"""Clocks of hosts that a test, or user code that hangs, can put forward while that code holds their event loop.

Hosts are other processes. A module that Python imports when they start adds to their time.
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

HANGS = """
import time

real, added = time.monotonic, 0.0
time.monotonic = lambda: real() + added

def hang():
    global added
    added += 86400.0
    while True: pass
"""


def lets_code_hang(folder: Path) -> dict[str, str]:
    """Return the environment of hosts whose user code can call `sitecustomize.hang()`: its time is over at once.

    Each process has such a clock of its own, so that no other can be charged for the time that passes.
    """
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(HANGS, encoding="utf-8")
    return {"PYTHONPATH": str(folder)}


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
