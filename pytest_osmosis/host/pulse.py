"""The pulse of a host: a file that it shares with the engine, which tells what keeps its threads from running.

As long as threads run, the monitor notes every second how much time each run has left. Code in C that holds the
interpreter's lock ends that. The engine notices, and sends a signal: its handler, in C, appends the stacks of all
threads. In the stack of the main thread, the name of a frame tells the run (`in_frame_of`).

User code may close the descriptor of the file, and its number may then belong to another file. So what the monitor
writes goes to mapped memory.
"""

from __future__ import annotations

import contextlib
import faulthandler
import mmap
import os
import re
import signal
from collections.abc import Awaitable, Callable, Iterable, Iterator
from json import loads
from types import FunctionType
from typing import Any, NamedTuple, TypeVar

from pytest_osmosis.host.protocol import Key
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.json_line import dumps

T = TypeVar("T")

EVERY_S = 1.0
STACKS_SIGNAL: int = signal.SIGRTMAX - 3 if hasattr(signal, "SIGRTMAX") else signal.SIGUSR2
"""User code is less likely to use it than SIGUSR1 and SIGUSR2."""
FRAME = re.compile(r"  File \"(?P<file>.*)\", line (?P<line>\d+) in (?P<name>.*)")
MARK = re.compile(r"osmosis (?P<run>\S+) attempt (?P<attempt>\d+)")


class TimeLeft(NamedTuple):
    """The seconds that an attempt has left."""

    key: Key
    left_s: float


class Pulse:
    """The host's side. `descriptor` is that of the file; the monitor notes as much as it has room for at first."""

    def __init__(self, descriptor: int) -> None:
        self._beats = 0
        self._memory = mmap.mmap(descriptor, 0)
        os.set_inheritable(descriptor, False)
        faulthandler.register(STACKS_SIGNAL, file=descriptor, all_threads=True, chain=False)
        os.register_at_fork(after_in_child=lambda: os.closerange(descriptor, descriptor + 1))

    def beat(self, left: Iterable[TimeLeft]) -> None:
        """Note that threads run, and the time that attempts have left; those with the least, if there are many."""
        self._beats += 1
        listed = sorted((round(each.left_s, 3), str(each.key.run), each.key.attempt) for each in left)
        for kept in (listed, listed[:500], []):
            data = dumps([self._beats, kept]).encode("ascii") + b"\n"
            if len(data) <= len(self._memory):
                self._memory[: len(data)] = data
                return


async def in_frame_of(key: Key, work: Callable[[], Awaitable[T]]) -> T:
    """Return what `work` returns, awaited in a frame whose name tells the run."""
    name = f"osmosis {key.run} attempt {key.attempt}"
    awaited: Any = FunctionType(_await.__code__.replace(co_name=name), globals())
    result: T = await awaited(work)
    return result


async def _await(work: Callable[[], Awaitable[T]]) -> T:
    return await work()


class NotedBeat(NamedTuple):
    """One note of the monitor, as the engine reads it."""

    number: int
    left_s: dict[Key, float]


def read_beat(data: bytes) -> NotedBeat | None:
    """Return the note at the beginning of the file, None if there is none, or only a part of it."""
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        number, left = loads(data.partition(b"\n")[0])
        keys = [(RunId.named(run), attempt, left_s) for left_s, run, attempt in left]
        return NotedBeat(number, {Key(run, attempt): left_s for run, attempt, left_s in keys if run is not None})
    return None


class StackFrame(NamedTuple):
    file: str
    line: int
    name: str


def read_stacks(text: str) -> list[list[StackFrame]]:
    """Return the stacks of all threads, that of the main thread first, each with the oldest frame first."""
    return [
        [StackFrame(match["file"], int(match["line"]), match["name"]) for match in reversed(list(frames))]
        for frames in _by_thread(text)
    ]


def _by_thread(text: str) -> Iterator[Iterator[re.Match[str]]]:
    threads = re.split(r"^(?=Current thread|Thread 0x)", text, flags=re.MULTILINE)
    for thread in sorted(threads, key=lambda thread: not thread.startswith("Current thread")):
        if "most recent call first" in thread:
            yield FRAME.finditer(thread)


def key_in(stack: Iterable[StackFrame]) -> Key | None:
    """Return the attempt whose code is in a stack, None if no frame tells."""
    for frame in stack:
        match = MARK.fullmatch(frame.name)
        run = RunId.named(match["run"]) if match else None
        if match and run is not None:
            return Key(run, int(match["attempt"]))
    return None
