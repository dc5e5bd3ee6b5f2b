"""Ticks in the loop of xdist's controller, which otherwise wakes up only for messages of its workers.

A thread puts a tick into the queue that the loop reads. So ticks are handled in pytest's main thread, between two
reports.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

TICK_S = 0.2
NAME = "osmosis_tick"


class Ticks:
    """Calls `tick` from the loop of xdist's controller, until `end`.

    `DSession.queue`, and that its loop calls `worker_<name>` for an entry (name, arguments), are private in xdist. If
    the queue goes away, the live line is only updated between reports; if entries change, test_live_line.py notices.
    """

    def __init__(self, config: pytest.Config, tick: Callable[[], None]) -> None:
        self._controller: Any = config.pluginmanager.get_plugin("dsession")
        self._tick = tick
        self._ended = threading.Event()
        self._handled = threading.Event()
        self._thread = threading.Thread(target=self._run, name="osmosis-ticks", daemon=True)

    def begin(self) -> None:
        if hasattr(self._controller, "queue"):
            setattr(self._controller, f"worker_{NAME}", self._on_tick)
            self._handled.set()
            self._thread.start()

    def end(self) -> None:
        """Make no further tick. Idempotent."""
        self._ended.set()
        self._handled.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(TICK_S):
            self._handled.wait()  # at most one tick waits in the queue, however busy the loop is
            self._handled.clear()
            self._controller.queue.put((NAME, {}))

    def _on_tick(self) -> None:
        self._handled.set()
        if not self._ended.is_set():
            self._tick()
