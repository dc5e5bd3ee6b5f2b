"""The memory of all processes that a test starts, from /proc. Elsewhere than on Linux it is 0."""

from __future__ import annotations

import os
import re
import threading
from pathlib import Path
from types import TracebackType

EVERY_S = 0.05
PROC = Path("/proc")


class PeakMemory:
    """The peak of the proportional set sizes of this process's descendants, in MB, sampled while it is entered."""

    def __init__(self) -> None:
        self.peak_mb = 0.0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> PeakMemory:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._over.wait(EVERY_S):
            self.peak_mb = max(self.peak_mb, sum(map(_size_mb, descendants(os.getpid()))))


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    found = []
    for children in PROC.glob(f"{pid}/task/*/children"):
        try:
            started = [int(child) for child in children.read_text().split()]
        except OSError:
            continue  # the thread ended
        for child in started:
            found += [child, *descendants(child)]
    return found


def _size_mb(pid: int) -> float:
    try:
        size = re.search(r"^Pss: +(\d+) kB$", (PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0  # it ended
    return int(size[1]) / 1024 if size else 0.0
