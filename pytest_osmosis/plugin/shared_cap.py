"""The cap on rollouts in flight that the entries of one config share while they run together.

Each entry has a share, and the shares are moved as entries begin and end: first an entry with too much gives some back,
and what its hosts have really given back goes to others. So the cap is used, and never exceeded.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol, TypeVar

from pytest_osmosis.record.run_counts import RunCounts

T = TypeVar("T")
TICK_S = 0.02
"""Shares move at most this often, and are looked at this often until they have moved."""


class Shared(Protocol):
    """An engine that has a share of a cap."""

    @property
    def progress(self) -> RunCounts: ...

    @property
    def most_in_flight(self) -> int: ...

    def limit(self, in_flight: int) -> None: ...


class Need(NamedTuple):
    """The most rollouts that an engine may have in flight, and the number of its runs that are left."""

    most: int
    n_left: Callable[[], int]


class SharedCap:
    """Shares out `cap` rollouts in flight. Every method may be called from any thread. No share moves while somebody
    holds `lock`, so that engines that are added together get theirs together."""

    def __init__(self, cap: int, lock: threading.RLock) -> None:
        self._cap = cap
        self._lock = lock
        self._needs: dict[Shared, Need] = {}
        self._limits: dict[Shared, int] = {}
        self._changed = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="osmosis-shares", daemon=True)

    def add(self, engine: Shared, need: Need) -> None:
        """Let an engine have a share. It begins nothing before it gets one."""
        engine.limit(0)
        with self._lock:
            self._needs[engine], self._limits[engine] = need, 0
            if self._thread.ident is None and not self._closed:
                self._thread.start()
        self._changed.set()

    def remove(self, engine: Shared) -> None:
        """Take an engine out, all runs of which are done."""
        with self._lock:
            self._needs.pop(engine, None)
            self._limits.pop(engine, None)
        self._changed.set()

    def changed(self) -> None:
        """Note that a run is done."""
        self._changed.set()

    def close(self) -> None:
        """Move no further share."""
        self._closed = True
        self._changed.set()

    def _run(self) -> None:
        moved = True
        while not self._closed:
            self._changed.wait(None if moved else TICK_S)
            self._changed.clear()
            moved = self.share()
            time.sleep(TICK_S)

    def share(self) -> bool:
        """Move shares as far as they can be moved now. Return True if nobody waits for more."""
        with self._lock:
            needs = {engine: min(need.most, _left(engine, need)) for engine, need in self._needs.items()}
            fair = fair_shares(self._cap, needs)
            short = [engine for engine in fair if self._limits[engine] < fair[engine]]
            if not short:
                return True
            for engine, share in fair.items():
                if self._limits[engine] > share:
                    self._limit(engine, share)
            free = self._cap - sum(engine.most_in_flight for engine in self._needs)
            for engine in short:
                more = min(free, fair[engine] - self._limits[engine])
                if more > 0:
                    self._limit(engine, self._limits[engine] + more)
                    free -= more
            return all(self._limits[engine] >= fair[engine] for engine in short)

    def _limit(self, engine: Shared, in_flight: int) -> None:
        self._limits[engine] = in_flight
        engine.limit(in_flight)


def fair_shares(cap: int, needs: Mapping[T, int]) -> dict[T, int]:
    """Return equal shares of a cap, none larger than it is needed; what one does not need goes to the others.

    >>> fair_shares(10, {"a": 8, "b": 8, "c": 1}), fair_shares(2, {"a": 8, "b": 8, "c": 8})
    ({'c': 1, 'a': 5, 'b': 4}, {'a': 1, 'b': 1, 'c': 0})
    """
    shares: dict[T, int] = {}
    left = cap
    for number, (name, need) in enumerate(sorted(needs.items(), key=lambda pair: pair[1])):
        shares[name] = min(need, -(-left // (len(needs) - number)))
        left -= shares[name]
    return shares


def _left(engine: Shared, need: Need) -> int:
    """Return the number of runs that may still be in flight: also those of a row that were made besides."""
    counts = engine.progress
    return max(need.n_left(), counts.submitted - counts.done)
