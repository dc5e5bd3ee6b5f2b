"""The memory of processes and of those that they started, from /proc. Elsewhere than on Linux it is 0."""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType

EVERY_S = 0.05
PROC = Path("/proc")


class PeakMemory:
    """The peak of the memory that `processes` have together, in MB, sampled while it is entered.

    `size_mb` is the memory of one process: `resident_mb`, or `proportional_mb`.
    """

    def __init__(self, processes: Callable[[], Iterable[int]], size_mb: Callable[[int], float]) -> None:
        self.peak_mb = 0.0
        self._processes = processes
        self._size_mb = size_mb
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
            self.peak_mb = max(self.peak_mb, sum(map(self._size_mb, self._processes())))


def descendants(pid: int) -> Iterator[int]:
    """Yield the processes that a process started, and those that they started; reading only theirs costs little."""
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


def resident_mb(pid: int) -> float:
    """Return the resident memory of a process. What processes share counts for each of them."""
    try:
        pages = int((PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError):
        return 0.0  # it ended
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def proportional_mb(pid: int) -> float:
    """Return the resident memory of a process, with its part of what it shares."""
    try:
        size = re.search(r"^Pss: +(\d+) kB$", (PROC / str(pid) / "smaps_rollup").read_text(), re.MULTILINE)
    except OSError:
        return 0.0  # it ended
    return int(size[1]) / 1024 if size else 0.0
