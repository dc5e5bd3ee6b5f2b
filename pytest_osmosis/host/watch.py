"""The watch: a thread that notices when code holds the event loop, and ends it when its time is up.

Code that blocks (a `while True`, `time.sleep`, a synchronous request) stops every rollout of its host. The watch sees
the heartbeat of the loop miss, finds the task that runs and the run it belongs to, and lets it go on until that run's
own time is spent. Then it raises `Interrupted` inside the code that blocks, by a signal to the main thread; what
swallows that three times (or never returns to Python) is reported, and the engine ends the process.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from pytest_osmosis.host.deadline import Deadline, Stalls
from pytest_osmosis.host.protocol import Key

BEAT_S = 0.1
LATE_S = 0.25
"""A heartbeat this late is a stall; less is an ordinary busy loop."""
TRIES = 3
BETWEEN_TRIES_S = 1.0


class Interrupted(BaseException):
    """Raised by the watch inside code that held the event loop for longer than its run may take."""


@dataclass(slots=True)
class Watched:
    """A run that is being rolled out or scored: its deadline, and how often the watch interrupted it."""

    key: Key
    deadline: Deadline
    tries: int = 0
    tried_at: float = 0.0


class Watch:
    """Watches the loop that it is started on, from a daemon thread. `stalled(key, stack)` is called from there."""

    def __init__(self, stalls: Stalls, stalled: Callable[[Key, str], None]) -> None:
        self._stalls = stalls
        self._stalled = stalled
        self._owners: WeakKeyDictionary[asyncio.Task[Any], Watched] = WeakKeyDictionary()
        self._victim: Watched | None = None
        self._culprit: Watched | None = None
        self._beat = time.monotonic()

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch `loop`, which runs in the current thread."""
        self._loop = loop
        self._main = threading.get_ident()
        signal.signal(signal.SIGUSR1, self._interrupt)
        loop.set_task_factory(self._task)
        self._heartbeat()
        threading.Thread(target=self._run, name="osmosis-watch", daemon=True).start()

    def own(self, watched: Watched) -> None:
        """The current task, and every task that it starts, belongs to `watched`."""
        task = asyncio.current_task()
        assert task is not None
        self._owners[task] = watched

    def _task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        parent = asyncio.current_task(loop)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        owner = self._owners.get(parent) if parent is not None else None
        if owner is not None:
            self._owners[task] = owner
        return task

    def _heartbeat(self) -> None:
        now = time.monotonic()
        late = now - self._beat - BEAT_S
        if late > LATE_S:
            self._stalls.total_s += late
            if self._culprit is not None:
                self._culprit.deadline.owe(late)
        self._culprit = None
        self._beat = now
        self._loop.call_later(BEAT_S, self._heartbeat)

    def _run(self) -> None:
        while True:
            time.sleep(BEAT_S)
            if time.monotonic() - self._beat > BEAT_S + LATE_S:
                self._look()

    def _look(self) -> None:
        task = asyncio.current_task(self._loop)
        watched = self._owners.get(task) if task is not None else None
        if watched is None:
            return
        self._culprit = watched
        now = time.monotonic()
        if watched.deadline.remaining_s() > 0 or now - watched.tried_at < BETWEEN_TRIES_S:
            return
        watched.tried_at = now
        watched.tries += 1
        if watched.tries > TRIES:
            frame = sys._current_frames().get(self._main)
            self._stalled(watched.key, "".join(traceback.format_stack(frame)))
            return
        self._victim = watched
        signal.pthread_kill(self._main, signal.SIGUSR1)

    def _interrupt(self, _signal: int, _frame: FrameType | None) -> None:
        victim, self._victim = self._victim, None
        task = asyncio.current_task(self._loop)
        if victim is not None and task is not None and self._owners.get(task) is victim:
            raise Interrupted
