"""Deadlines that count only a rollout's own time, and the interrupt of user code that holds the event loop beyond one.

Neither waits for its slot nor stalls of the loop by other code count. The `LoopMonitor` adds up in `StallTime` how long
callbacks could not run. A `Deadline` leaves that time out, except for stalls that its own run caused (`owe`).

Code that blocks (a `while True`, `time.sleep`, a synchronous request) stops every rollout of its host. A thread notices
that the loop's heartbeat is late, looks up the running task and its run, and charges the time to that run alone. Once
the run's own time is spent, a signal to the main thread raises `Interrupted` inside the code that blocks. Code that
keeps even this thread from running (a regular expression that backtracks holds the GIL) is reached by a timer of the
processor time that it burns. Code that swallows the interrupts is reported, and the engine ends the process. So it does
if code never returns to Python and keeps the lock: then nothing is heard of the host.

An interrupt strikes only while user code, or the standard library as called by it, is on top of the stack: our own code
would be left with its bookkeeping half done. Otherwise the next interrupt follows a heartbeat later.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from types import FrameType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from msgspec import Struct

from pytest_osmosis.host.protocol import Key
from pytest_osmosis.text.user_code import runs_user_code, user_stack

T = TypeVar("T")

CANCEL_AGAIN_S = 1.0
"""Code that swallows its cancellation is cancelled again after this long."""


class StallTime(Struct):
    """The seconds, in all, during which the event loop could not run callbacks."""

    total_s: float = 0.0


class DeadlineExpired(TimeoutError):
    """The time of a `Deadline` ran out."""


OnStuck = Callable[["asyncio.Task[Any]", int], None]
"""Receives a task that did not end, and how often it has been cancelled."""


def running_task() -> asyncio.Task[Any]:
    task = asyncio.current_task()
    if task is None:
        raise RuntimeError("no task is running")
    return task


class Deadline:
    """An async context that cancels its task once `budget_s` of the run's own time is spent.

    Leaving it then raises `DeadlineExpired`, whatever the code inside did with the cancellation. `loop` is the event
    loop that it is used from.
    """

    expired = False
    _owed_s = 0.0
    _paused_s = 0.0
    _paused_at: float | None = None
    _frozen_s: float | None = None
    _n_waits = _n_works = 0
    _stalls_at_pause = 0.0
    _cancels = 0
    _timer: asyncio.TimerHandle | None = None

    def __init__(self, budget_s: float, stalls: StallTime, on_stuck: OnStuck) -> None:
        self.budget_s = budget_s
        self.loop = asyncio.get_running_loop()
        self._stalls = stalls
        self._on_stuck = on_stuck
        self._begun = self.loop.time()
        self._stalls_before = stalls.total_s

    def owe(self, seconds: float) -> None:
        """Count a stall after all: this run caused it."""
        self._owed_s += seconds

    def spent_s(self) -> float:
        """Return the run's own time so far."""
        frozen_s = self._frozen_s  # read once, for the monitor
        return self._running_s() if frozen_s is None else frozen_s

    def _running_s(self) -> float:
        paused_s = self._paused_s + self._pause_s()
        stalled_s = self._stalls.total_s - self._stalls_before
        return self.loop.time() - self._begun - paused_s - stalled_s + self._owed_s

    def remaining_s(self) -> float:
        """Return the rest of the budget, at least 0."""
        return max(0.0, self.budget_s - self.spent_s())

    def pause(self) -> None:
        if self._paused_at is None:
            self._stalls_at_pause, self._paused_at = self._stalls.total_s, self.loop.time()

    def resume(self) -> None:
        self._paused_s += self._pause_s()
        self._paused_at = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        self.pause()
        try:
            yield
        finally:
            self.resume()

    @contextmanager
    def paused_blocked(self) -> Iterator[None]:
        """A context in which no time is spent, even if the run holds the loop meanwhile: it only waits for others.

        Unlike `paused`, it is entered in another thread, always the same one, and may be entered several times.
        """
        self.count_blocked(waits=1)
        try:
            yield
        finally:
            self.count_blocked(waits=-1)

    def count_blocked(self, *, waits: int = 0, works: int = 0) -> None:
        """Count requests of the run that wait for others, and those that do not: while there are any, time is spent."""
        self._n_waits += waits
        self._n_works += works
        is_paused, frozen_s = self._n_waits > 0 and not self._n_works, self._frozen_s
        if is_paused and frozen_s is None:
            self._frozen_s = self._running_s()
        elif not is_paused and frozen_s is not None:
            self._owed_s -= self._running_s() - frozen_s
            self._frozen_s = None  # last: the monitor, in its thread, must not find the wait charged

    def _pause_s(self) -> float:
        """Return the length of the current pause, without its stalls: those are left out separately, or owed."""
        paused_at = self._paused_at  # read once, because the monitor calls this from its thread
        if paused_at is None:
            return 0.0
        return self.loop.time() - paused_at - (self._stalls.total_s - self._stalls_at_pause)

    async def __aenter__(self) -> Deadline:
        task = running_task()
        self._task: asyncio.Task[Any] | None = task
        self._cancelling = task.cancelling()
        self._begun = self.loop.time()
        self._stalls_before = self._stalls.total_s
        self._arm(task, self.budget_s)
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None  # it has the context, in which something may have this deadline
        task, self._task = self._task, None  # whatever maps tasks to deadlines would otherwise keep both alive
        if not self.expired or task is None:
            return
        for _ in range(self._cancels):
            task.uncancel()
        if task.cancelling() <= self._cancelling:
            raise DeadlineExpired from error

    def _arm(self, task: asyncio.Task[Any], delay_s: float) -> None:
        self._timer = self.loop.call_later(delay_s, self._check, task)

    def _check(self, task: asyncio.Task[Any]) -> None:
        left_s = self.remaining_s()
        if left_s > 0:
            self._arm(task, max(left_s, 0.01))
            return
        self.expired = True
        self._cancels += 1
        task.cancel()
        if self._cancels > 1:
            self._on_stuck(task, self._cancels - 1)
        self._arm(task, CANCEL_AGAIN_S)


BEAT_S = 0.1
LATE_S = 0.25
"""A heartbeat this late is a stall; less is an ordinary busy loop."""
BURN_S = 0.25
"""Processor time between two checks of code that lets no other thread run."""
UNWIND_S = 1.0
"""Interrupted code gets this long to unwind before it is interrupted again."""
GIVE_UP_S = 4.0
"""Code that still holds the loop this long after its first interrupt is reported."""


class Interrupted(BaseException):
    """Raised inside code that held the event loop for longer than its run may take."""


class MonitoredCode(Struct):
    """User code that runs for a run, in a context that belongs to it, with every task that it starts there.

    `tried_at` is the time of the first attempt to interrupt it, `interrupted_at` that of the last interrupt, and
    `interrupted_stack` the stack that it hit ("" if none did): leaving the context then raises `Interrupted`.
    """

    key: Key
    deadline: Deadline
    monitor: LoopMonitor
    tried_at: float | None = None
    interrupted_at: float = 0.0
    reported: bool = False
    interrupted_stack: str = ""

    def __enter__(self) -> None:
        self.monitor.begin(self)

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: object) -> None:
        self.monitor.end()
        if kind is None and self.interrupted_stack:
            raise Interrupted  # the code may have swallowed the first one


RECURSION_LIMIT = 1000
"""Our own code needs this much, whatever limit user code has set."""


class LoopMonitor:
    """Watches an event loop from a daemon thread, in which `on_stall(key, stack)` is called.

    `stalls` adds up the time for which code held the loop; the deadline of the run that did is charged for it. It knows
    which user code each task is in (`begin`, `end`), and puts right afterwards what that code may have left behind.
    """

    def __init__(self, on_stall: Callable[[Key, str], None]) -> None:
        self.stalls = StallTime()
        self._on_stall = on_stall
        self._pid = os.getpid()
        self._inside: dict[asyncio.Task[Any], MonitoredCode] = {}
        self._owners: WeakKeyDictionary[asyncio.Task[Any], MonitoredCode] = WeakKeyDictionary()
        self._blocking: MonitoredCode | None = None
        self._victim: MonitoredCode | None = None
        self._last_holder: MonitoredCode | None = None
        self._accounts = threading.Lock()  # protects _due, _charged and _last_holder
        self._due = self._charged = monotonic() + BEAT_S

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to watch `loop`, which runs in the current thread."""
        self._loop = loop
        self._main = threading.get_ident()
        signal.signal(signal.SIGUSR1, self._on_signal)
        signal.signal(signal.SIGVTALRM, self._on_burn)
        signal.setitimer(signal.ITIMER_VIRTUAL, BURN_S, BURN_S)
        loop.set_task_factory(self._task)
        self._heartbeat()
        threading.Thread(target=self._run, name="osmosis-monitor", daemon=True).start()

    def begin(self, code: MonitoredCode) -> None:
        """Let what the current task does from now on belong to `code`."""
        self._inside[running_task()] = code

    def end(self) -> None:
        """Let what the current task does from now on belong to no run, with the recursion limit that our code needs."""
        del self._inside[running_task()]
        self.end_forks()
        if sys.getrecursionlimit() < RECURSION_LIMIT:
            sys.setrecursionlimit(RECURSION_LIMIT)

    def end_forks(self) -> None:
        """End this process if user code forked it: it would act as a second host."""
        if os.getpid() != self._pid:
            os._exit(0)

    def blocking(self, code: MonitoredCode, call: Callable[[], T]) -> T:
        """Call synchronous code, which may use a loop of its own (`asyncio.run`).

        `asyncio.run` refuses to run inside of a running loop. Without these private functions of asyncio every
        synchronous scorer that uses it would fail; tests/engine/test_engine_scoring.py notices.
        """
        loop, task = asyncio.get_running_loop(), running_task()
        self._blocking = code
        asyncio.tasks._leave_task(loop, task)
        asyncio._set_running_loop(None)
        try:
            return call()
        finally:
            asyncio._set_running_loop(loop)
            asyncio.tasks._enter_task(loop, task)
            self._blocking = None

    def _task(self, loop: asyncio.AbstractEventLoop, coro: Any, **options: Any) -> asyncio.Task[Any]:
        parent = asyncio.current_task(loop)
        task: asyncio.Task[Any] = asyncio.Task(coro, loop=loop, **options)
        owner = self._owner(parent)
        if owner is not None:
            self._owners[task] = owner
        return task

    def _owner(self, task: asyncio.Task[Any] | None) -> MonitoredCode | None:
        """Return the code that a task is in, or that started it, even if that is over; None for our own code."""
        return None if task is None else self._inside.get(task) or self._owners.get(task)

    def _heartbeat(self) -> None:
        with self._accounts:
            now = monotonic()
            self._charge(now, self._last_holder)
            self._due = self._charged = now + BEAT_S
            self._last_holder = None
        self._loop.call_later(BEAT_S, self._heartbeat)

    def _charge(self, now: float, holder: MonitoredCode | None) -> None:
        """Account for the stall since the last check: only `holder` pays for it."""
        if now - self._due <= LATE_S:
            return
        held_s = now - self._charged
        self._charged = now
        self.stalls.total_s += held_s
        self._last_holder = holder
        if holder is not None:
            holder.deadline.owe(held_s)

    def _holder(self) -> MonitoredCode | None:
        """Return the code that holds the loop, or None if it is our own or belongs to no run."""
        if self._blocking is not None:
            return self._blocking
        return self._owner(asyncio.current_task(self._loop))

    def _overdue(self, now: float) -> MonitoredCode | None:
        """If the loop is late, charge the code that holds it, and return that code if its time is over."""
        if now - self._due <= LATE_S:
            return None
        holder = self._holder()
        self._charge(now, holder)
        return holder if holder is not None and holder.deadline.remaining_s() <= 0 else None

    def _run(self) -> None:
        while True:
            with self._accounts:
                now = monotonic()
                overdue = self._overdue(now)
            if overdue is not None:
                self._end(overdue, now)
            sleep(BEAT_S)

    def _end(self, code: MonitoredCode, now: float) -> None:
        code.tried_at = code.tried_at or now
        if now - code.tried_at > GIVE_UP_S:
            if not code.reported:
                code.reported = True
                self._on_stall(code.key, user_stack(sys._current_frames().get(self._main)))
        else:
            self._victim = code
            signal.pthread_kill(self._main, signal.SIGUSR1)

    def _on_signal(self, _signal: int, frame: FrameType | None) -> None:
        """Interrupt the victim, in the main thread on top of whatever that runs."""
        victim, self._victim = self._victim, None
        if victim is not None and self._holder() is victim:
            self._interrupt(victim, frame)

    def _on_burn(self, _signal: int, frame: FrameType | None) -> None:
        """Interrupt overdue code, in the main thread, when the monitor's own thread may have had no chance to run."""
        if not self._accounts.acquire(blocking=False):
            return
        try:
            overdue = self._overdue(monotonic())
        finally:
            self._accounts.release()
        if overdue is not None:
            self._interrupt(overdue, frame)

    def _interrupt(self, code: MonitoredCode, frame: FrameType | None) -> None:
        now = monotonic()
        if now - code.interrupted_at > UNWIND_S and runs_user_code(frame):
            code.interrupted_at = now
            code.interrupted_stack = user_stack(frame)
            raise Interrupted
