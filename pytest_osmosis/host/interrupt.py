"""The watch: notices when code holds the event loop, and ends it when the time of its run is up.

Code that blocks (a `while True`, `time.sleep`, a synchronous request) stops every rollout of its host. A thread sees
the heartbeat of the loop miss, finds the task that runs and the run it belongs to, and charges that run alone for the
time. Once the run's own time is spent it raises `Interrupted` inside the code that blocks, by a signal to the main
thread. Code that keeps even this thread from running (a regular expression that backtracks holds the GIL) is reached
by a timer of the processor time it burns. What swallows the interrupts, or never returns to Python, is reported, and
the engine ends the process.

An interrupt strikes only while user code is on top of the stack, what it called in the standard library aside: ours
would be left with its bookkeeping half done. The next one comes a tick later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any
from weakref import WeakKeyDictionary

from pytest_osmosis.host.deadline import Deadline, Stalls
from pytest_osmosis.host.loading import user_stack
from pytest_osmosis.host.protocol import Key

BEAT_S = 0.1
LATE_S = 0.25
"""A heartbeat this late is a stall; less is an ordinary busy loop."""
BURN_S = 0.25
"""Processor time between two looks at code that lets no other thread run."""
UNWIND_S = 1.0
"""Interrupted code gets this long to unwind before it is interrupted again."""
GIVE_UP_S = 4.0
"""What still holds the loop this long after its first interrupt is reported."""
OURS = str(Path(__file__).parents[1]) + os.sep
STANDARD_LIBRARY = (str(Path(os.__file__).parent) + os.sep, "<frozen ")


class Interrupted(BaseException):
    """Raised by the watch inside code that held the event loop for longer than its run may take."""


@dataclass(slots=True)
class Watched:
    """User code that works for a run: its deadline, and when the watch first tried and last managed to interrupt it.

    `inside` while its own task is in that code; tasks that it started and forgot are watched on. `held` is the stack
    that was interrupted, "" where none was.
    """

    key: Key
    deadline: Deadline
    inside: bool = False
    tried_at: float | None = None
    interrupted_at: float = 0.0
    reported: bool = False
    held: str = ""


class Watch:
    """Watches the loop that it is started on, from a daemon thread. `stalled(key, stack)` is called from there."""

    def __init__(self, stalls: Stalls, stalled: Callable[[Key, str], None]) -> None:
        self._stalls = stalls
        self._stalled = stalled
        self._mains: WeakKeyDictionary[asyncio.Task[Any], Watched] = WeakKeyDictionary()
        self._owners: WeakKeyDictionary[asyncio.Task[Any], Watched] = WeakKeyDictionary()
        self._blocking: Watched | None = None
        self._victim: Watched | None = None
        self._last_holder: Watched | None = None
        self._accounts = threading.Lock()  # protects _due, _charged and _last_holder
        self._due = self._charged = time.monotonic() + BEAT_S

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch `loop`, which runs in the current thread."""
        self._loop = loop
        self._main = threading.get_ident()
        signal.signal(signal.SIGUSR1, self._on_signal)
        signal.signal(signal.SIGVTALRM, self._on_burn)
        signal.setitimer(signal.ITIMER_VIRTUAL, BURN_S, BURN_S)
        loop.set_task_factory(self._task)
        self._heartbeat()
        threading.Thread(target=self._run, name="osmosis-watch", daemon=True).start()

    @contextmanager
    def over(self, watched: Watched) -> Iterator[None]:
        """What runs inside, and every task that it starts, belongs to `watched`."""
        task = asyncio.current_task()
        assert task is not None
        self._mains[task] = self._owners[task] = watched
        watched.inside = True
        try:
            yield
        finally:
            watched.inside = False

    @contextmanager
    def blocking(self, watched: Watched) -> Iterator[None]:
        """Synchronous code runs inside. It is off the loop, so that it may use a loop of its own (`asyncio.run`)."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._blocking = watched
        asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
        try:
            yield
        finally:
            asyncio._set_running_loop(loop)
            asyncio.tasks._enter_task(loop, task)
            self._blocking = None

    def _task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        parent = asyncio.current_task(loop)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        owner = self._owners.get(parent) if parent is not None else None
        if owner is not None:
            self._owners[task] = owner
        return task

    # -- whose time it is --------------------------------------------------------------------------------

    def _heartbeat(self) -> None:
        with self._accounts:
            now = time.monotonic()
            self._charge(now, self._last_holder)
            self._due = self._charged = now + BEAT_S
            self._last_holder = None
        self._loop.call_later(BEAT_S, self._heartbeat)

    def _charge(self, now: float, holder: Watched | None) -> None:
        """Account for the stall since it was last looked at: it is nobody's time but `holder`'s."""
        if now - self._due <= LATE_S:
            return
        held_s = now - self._charged
        self._charged = now
        self._stalls.total_s += held_s
        self._last_holder = holder
        if holder is not None:
            holder.deadline.owe(held_s)

    def _holder(self) -> Watched | None:
        """Whose code holds the loop; None where it is nobody's, or our own."""
        if self._blocking is not None:
            return self._blocking
        task = asyncio.current_task(self._loop)
        if task is None:
            return None
        watched = self._owners.get(task)
        if watched is not None and self._mains.get(task) is watched and not watched.inside:
            return None
        return watched

    def _overdue(self, now: float) -> Watched | None:
        """Charge who holds the loop, if it is late; gives them where their time is up."""
        if now - self._due <= LATE_S:
            return None
        holder = self._holder()
        self._charge(now, holder)
        return holder if holder is not None and holder.deadline.remaining_s() <= 0 else None

    # -- interrupts --------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            time.sleep(BEAT_S)
            with self._accounts:
                now = time.monotonic()
                overdue = self._overdue(now)
            if overdue is not None:
                self._end(overdue, now)

    def _end(self, watched: Watched, now: float) -> None:
        watched.tried_at = watched.tried_at or now
        if now - watched.tried_at > GIVE_UP_S:
            if not watched.reported:
                watched.reported = True
                self._stalled(watched.key, user_stack(sys._current_frames().get(self._main)))
        else:
            self._victim = watched
            signal.pthread_kill(self._main, signal.SIGUSR1)

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        """In the main thread, on top of whatever it does."""
        victim, self._victim = self._victim, None
        if victim is not None and self._holder() is victim:
            self._interrupt(victim, frame)

    def _on_burn(self, _signal: int, frame: FrameType | None) -> None:
        """In the main thread, where the watch's own may have had no chance to run."""
        if not self._accounts.acquire(blocking=False):
            return
        try:
            overdue = self._overdue(time.monotonic())
        finally:
            self._accounts.release()
        if overdue is not None:
            self._interrupt(overdue, frame)

    def _interrupt(self, watched: Watched, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - watched.interrupted_at > UNWIND_S and _is_users(frame):
            watched.interrupted_at = now
            watched.held = user_stack(frame)
            raise Interrupted


def _is_users(frame: FrameType | None) -> bool:
    """True where user code, or the standard library as called by it, is on top of the stack."""
    while frame is not None:
        path = frame.f_code.co_filename
        if not path.startswith(STANDARD_LIBRARY) or "-packages" in path:
            return not path.startswith(OURS)
        frame = frame.f_back
    return False
