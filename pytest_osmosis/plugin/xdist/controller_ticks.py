"""Time that passes in the loop of xdist's controller, which wakes up for its workers alone.

A thread puts a tick into the queue that the loop reads; so whatever hears of ticks is called from the loop, in
pytest's main thread, between two reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

TICK_S = 0.2
NAME = "osmosis_tick"


class Ticks:
    """Calls `tick` from the loop of xdist's controller, until `end`. Where xdist has no such loop, it never does."""

    def __init__(self, config: pytest.Config, tick: Callable[[], None]) -> None:
        self._controller: Any = config.pluginmanager.get_plugin("dsession")
        self._tick = tick
        self._ended = threading.Event()
        self._heard = threading.Event()
        self._thread = threading.Thread(target=self._run, name="osmosis-ticks", daemon=True)

    def begin(self) -> None:
        """Begin."""
        if hasattr(self._controller, "queue"):
            setattr(self._controller, f"worker_{NAME}", self._arrived)
            self._heard.set()
            self._thread.start()

    def end(self) -> None:
        """No further tick is made. Idempotent."""
        self._ended.set()
        self._heard.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            self._heard.wait()  # a loop that is busy finds one tick, and not as many as it missed
            self._heard.clear()
            self._controller.queue.put((NAME, {}))

    def _arrived(self) -> None:
        self._heard.set()
        if not self._ended.is_set():
            self._tick()
