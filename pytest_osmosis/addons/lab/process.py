"""The parent's side of the lab's child process, which calls one function and is ended if it hangs.

A call that takes too much processor time or memory, or waits without using the processor, is noticed here. Then its
process is ended with all that it started. Limits are those of the child's own use of the machine, because a busy
machine may be slow. When the time of the test is over, no further call begins; one that runs has its own limits, so
that its outcome is known.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from time import process_time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pytest_osmosis.addons.lab.calls import CallInput, CallOutcome, outcome_from_json, quoted_text, to_json
from pytest_osmosis.addons.lab.target import Target
from pytest_osmosis.errors import CodeError
from pytest_osmosis.processes.child import Child

if TYPE_CHECKING:
    from psutil import Process


BUDGET_S = 20.0
ROUNDS = 10
"""Searches for processes that were started while others were ended."""
CPU_S = 2.0
"""Processor seconds after which a call is cut off."""
IDLE = 0.02
"""Calls that use the processor in less than this share of their time only wait."""
MOST_PROCESSES = 32
TICK_S = 0.1
DRAIN_S = 1.0
MOST_REPLY_BYTES = 1 << 20
BOOT = "from pytest_osmosis.addons.lab.child import main; main()"
BROKEN = "broke the process in which it runs"


class TimeBudget:
    """The seconds that a test may take, and the calls that it made and left out.

    They are processor time of this process and of those that call functions, and the time that calls wait. A busy
    machine thus leaves out no call.
    """

    def __init__(self, seconds: float = BUDGET_S) -> None:
        self.seconds = seconds
        self.begin()

    def begin(self) -> None:
        """Begin another test."""
        self._began = process_time()
        self._spent_s = 0.0
        self.made = 0
        self.left_out = 0

    def spend(self, seconds: float) -> None:
        """Take note of the time of another process."""
        self._spent_s += seconds

    @property
    def left_s(self) -> float:
        """The seconds that are left, at least 0."""
        return max(0.0, self.seconds - self._spent_s - (process_time() - self._began))


class ProcessUsage(NamedTuple):
    """The processor time and the memory that processes use, how many they are, and True if one could run now."""

    cpu_s: float
    memory_mb: float
    processes: int
    runs: bool


def usage_of(leader: int) -> ProcessUsage:
    """Return what a process, children of it that ended, and its descendants use: nothing if it ended itself."""
    import psutil

    found = []
    for process in _tree(leader):
        with contextlib.suppress(psutil.Error), process.oneshot():
            if (status := process.status()) != psutil.STATUS_ZOMBIE:
                cpu_s = sum(process.cpu_times()[:4])  # user, system, and both of the children
                found.append((cpu_s, process.memory_info().rss / 2**20, status == psutil.STATUS_RUNNING))
    cpu_s, memory_mb, running = map(sum, zip(*found, strict=True)) if found else (0.0, 0.0, 0)
    return ProcessUsage(cpu_s, memory_mb, len(found), bool(running))


def end_tree(leader: int) -> None:
    """End a process that was not yet waited for, its group, its session and its descendants."""
    import psutil

    found, ended = {*_tree(leader)}, set[psutil.Process]()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
    for _ in range(ROUNDS):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        ended |= found
        found = {each for each in psutil.process_iter() if _is_in_session(each.pid, leader)} - ended
        if not found:
            return


def _tree(leader: int) -> list[Process]:
    import psutil

    with contextlib.suppress(psutil.Error):
        process = psutil.Process(leader)
        return [process, *process.children(recursive=True)]
    return []


def _is_in_session(pid: int, leader: int) -> bool:
    with contextlib.suppress(OSError):
        return os.getsid(pid) == leader
    return False


@dataclass(frozen=True, slots=True)
class LabLimits:
    """The limits of the first call, which may import modules, of the time to wait, and of the memory of calls.

    What the import of the module took does not count.
    """

    first_cpu_s: float = 20.0
    waiting_s: float = 5.0
    memory_mb: float = 2048.0


LIMITS = LabLimits()


class LabProcess:
    """A process that calls one reward function. After it ended, the next call starts it again.

    `hash_seed` is the seed of its hashes, and its clock runs `clock_s` ahead. `budget` is the time of the present test.
    """

    def __init__(
        self,
        target: Target,
        budget: TimeBudget,
        *,
        hash_seed: int = 0,
        clock_s: float = 0.0,
        limits: LabLimits = LIMITS,
    ) -> None:
        self._target = target
        self._budget = budget
        self._hash_seed = hash_seed
        self._clock_s = clock_s
        self._limits = limits
        self._running: _Running | None = None

    def begin(self) -> None:
        """Start the process, so that it imports the module while others do something else."""
        if self._running is None:
            env = {**os.environ, "PYTHONHASHSEED": str(self._hash_seed)}
            self._running = _Running(env)
            module, path = self._target.function.__module__, str(self._target.path)
            first = {"module": module, "path": path, "sys_path": sys.path}
            self._running.send({**first, "clock_s": self._clock_s, "sdk_shim": self._target.sdk_shim})

    def call(self, call_input: CallInput, *, patterns: bool = False, cpu_s: float = CPU_S) -> CallOutcome:
        """Call the function, and note its regular expressions if `patterns` is True.

        The outcome is `slow` if the call was cut off, `died` if it ended its process, and `not_called` if no time is
        left. Raises `CodeError` if the module cannot be imported.
        """
        try:
            if self._budget.left_s <= 0:
                raise _NoTimeLeft
            self.begin()
            assert self._running is not None
            self._wait_until_ready(self._running)
            outcome = self._called(self._running, call_input, patterns, cpu_s)
        except _NoTimeLeft:
            if self._running is not None and not self._running.is_ready:
                self.close()
            self._budget.left_out += 1
            return CallOutcome("not_called", text="was not called, because no time was left")
        self._budget.spend(outcome.seconds)
        if outcome.ended or self._running.has_too_many_processes():
            self.close()
        return outcome

    def close(self) -> None:
        """End the process and all that it started. Idempotent."""
        running, self._running = self._running, None
        if running is not None:
            running.close()

    def _wait_until_ready(self, running: _Running) -> None:
        """Wait until the module is imported. Raises `CodeError` if that fails."""
        if running.is_ready:
            return
        name, file = self._target.name, self._target.path.name
        failure = f"{file} could not be imported in a new process"
        try:
            state = json.loads(self._reply(running))
            failed, names = state.get("failed"), state.get("ready")
        except _Lost as lost:
            failed, names = f"it {lost}", None
        except (ValueError, AttributeError, RecursionError):
            failed, names = f"it {BROKEN}", None
        if isinstance(names, list) and name in names:
            self._budget.spend(running.ready())
            return
        self.close()
        if failed is not None:
            raise CodeError(f"{failure}: {quoted_text(str(failed))}")
        raise CodeError(f"{name} is missing when {file} is imported in a new process")

    def _called(self, running: _Running, call_input: CallInput, patterns: bool, cpu_s: float) -> CallOutcome:
        cpu_s = max(cpu_s, self._limits.first_cpu_s) if running.calls == 0 else cpu_s
        self._budget.made += 1
        number = running.request(self._target.name, call_input, patterns)
        try:
            answer = json.loads(self._reply(running, cpu_s))
            if answer["number"] != number:
                raise ValueError(answer["number"])
            return outcome_from_json(answer["outcome"])
        except _Lost as lost:
            return CallOutcome(lost.kind, text=str(lost), seconds=lost.seconds)
        except (ValueError, TypeError, KeyError, RecursionError):  # user code wrote to the pipe
            return CallOutcome("died", text=BROKEN)

    def _reply(self, running: _Running, cpu_s: float | None = None) -> bytes:
        """Return the next line of the process; without `cpu_s`, its import.

        Raises `_Lost` if there will be none, and `_NoTimeLeft` if an import takes all time.
        """
        began, before = time.monotonic(), None
        while not (line := running.line(TICK_S)):
            if line == b"":
                raise _Lost("died", running.last_words())
            usage = usage_of(running.pid)
            if not running.is_alive:
                return running.last_line()
            before = before or usage
            self._check(running, cpu_s, usage, usage.cpu_s - before.cpu_s, time.monotonic() - began)
        return line

    def _check(self, running: _Running, cpu_s: float | None, usage: ProcessUsage, used_s: float, took_s: float) -> None:
        """Raise `_Lost` if a call, or without `cpu_s` an import, uses the machine as it must not."""
        limits = self._limits
        if took_s > limits.waiting_s and used_s < IDLE * took_s and not usage.runs:
            raise _Lost("slow", f"waited for more than {limits.waiting_s:g} s", limits.waiting_s)
        if cpu_s is None:
            if usage.cpu_s > self._budget.left_s:
                raise _NoTimeLeft
            return
        if used_s > cpu_s:
            raise _Lost("slow", f"took more than {cpu_s:g} s of CPU time", used_s)
        if usage.memory_mb > running.ready_mb + limits.memory_mb:
            raise _Lost("died", f"took more than {limits.memory_mb:,.0f} MB of memory")


class _NoTimeLeft(Exception):
    """The time of the test is over."""


class _Lost(Exception):
    """The process will not reply: it has ended, or must be ended."""

    def __init__(self, kind: Literal["slow", "died"], text: str, seconds: float = 0.0) -> None:
        super().__init__(text)
        self.kind: Literal["slow", "died"] = kind
        self.seconds = seconds


class _Running(Child):
    """A running child process and its pipes."""

    def __init__(self, environ: dict[str, str]) -> None:
        self.is_ready = False
        self.ready_mb = 0.0
        self.calls = 0
        try:
            super().__init__(BOOT, subprocess.DEVNULL, environ=environ)
        except OSError as error:
            raise CodeError(f"the lab's process cannot be started: {error}") from error
        self._lines: queue.Queue[bytes] = queue.Queue(maxsize=8)
        self._reader = threading.Thread(target=self._read, name="osmosis-lab", daemon=True)
        self._reader.start()

    def send(self, message: dict[str, Any]) -> None:
        self.put(json.dumps(message).encode("ascii") + b"\n")

    def request(self, function: str, call_input: CallInput, patterns: bool) -> int:
        """Request a call, and return its number."""
        self.calls += 1
        call = {"function": function, "input": to_json(call_input), "patterns": patterns}
        self.send({"number": self.calls, **call})
        return self.calls

    def ready(self) -> float:
        """Take note that the module is imported, and return the processor time that this took."""
        usage = usage_of(self.pid)
        self.is_ready, self.ready_mb = True, usage.memory_mb
        return usage.cpu_s

    def line(self, timeout_s: float) -> bytes | None:
        """Return the next line, b"" at the end, None if there is none within the time."""
        try:
            return self._lines.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def last_line(self) -> bytes:
        """Return the line that a process wrote before it ended. Raises `_Lost` if there is none."""
        end_tree(self.pid)  # what it started holds its pipe
        line = self.line(DRAIN_S)
        if not line:
            raise _Lost("died", self.last_words())
        return line

    def last_words(self) -> str:
        """Return how the process lost its pipe."""
        end = time.monotonic() + DRAIN_S
        while self.is_alive:
            if time.monotonic() > end:
                return "closed the pipe of its process"
            time.sleep(TICK_S / 10)
        return f"ended its process (exit status {self.close()})"

    def has_too_many_processes(self) -> bool:
        return self.calls % MOST_PROCESSES == 0 and usage_of(self.pid).processes > MOST_PROCESSES

    def close(self) -> int:
        """End the process and all that it started, and return its exit status. Idempotent."""
        if self.process.returncode is None:
            end_tree(self.pid)
            self.reaped(0.0)
            end = time.monotonic() + DRAIN_S
            while self._reader.is_alive() and time.monotonic() < end:
                self.line(TICK_S / 10)  # the reader waits for room
        return self.process.returncode

    def _read(self) -> None:
        line = b"\n"
        with self.stdout, contextlib.suppress(OSError):
            while line.endswith(b"\n"):
                line = self.stdout.readline(MOST_REPLY_BYTES)
                self._lines.put(line)
        if line:  # it is too long, or was cut off
            self._lines.put(b"")
