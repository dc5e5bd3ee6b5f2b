"""The host's ends of the pipes to the engine: requests are read in a thread, events are written once per loop turn.

Functions of the standard library are imported by name, so that user code cannot replace them in their modules.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from io import BufferedReader
from os import write
from typing import Any

from pytest_osmosis.host.protocol import ArtifactEvent, HostEvent, Request, lines
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import dumps, loads

READ_BYTES = 1 << 18

Receive = Callable[[list[Request]], None]


def take_pipes() -> tuple[BufferedReader, int]:
    """Move the pipes of the protocol away from 0 and 1, where user code could harm them. Return both ends."""
    requests, events = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    os.register_at_fork(after_in_child=lambda: os.closerange(min(requests, events), max(requests, events) + 1))
    return os.fdopen(requests, "rb"), events


class RequestReader:
    """Reads requests in a thread, so that the host notices the end of the pipe whatever the event loop does."""

    def __init__(self, pipe: BufferedReader) -> None:
        self._pipe = pipe
        self._waiting: list[Request] = []
        self._lock = threading.Lock()  # protects _waiting and _receive
        self._receive: Receive | None = None

    def start(self) -> None:
        """Begin to read. Requests wait until `deliver_to` is called."""
        threading.Thread(target=self._read, name="osmosis-reader", daemon=True).start()

    def deliver_to(self, receive: Receive) -> None:
        """Call `receive` with the requests read so far, and from now on, in the reader's thread, with each read."""
        with self._lock:
            self._receive = receive
            receive(self._waiting)

    def _read(self) -> None:
        try:
            for read in lines(partial(self._pipe.read1, READ_BYTES)):
                self._deliver([loads(line.decode()) for line in read])
        finally:  # the engine is gone, or user code closed the pipe or broke what reads it: nothing would be heard
            end_process_group()

    def _deliver(self, requests: list[Request]) -> None:
        with self._lock:
            if self._receive is None:
                self._waiting += requests
            else:
                self._receive(requests)


class EventWriter:
    """Writes events: all those of one turn of the loop together, at its end or when `flush` is called.

    `turns` counts the turns of the loop in which there were events.
    """

    def __init__(self, pipe: int, redaction: Redaction, loop: asyncio.AbstractEventLoop) -> None:
        self.turns = 0
        self._pipe = pipe
        self._redaction = redaction
        self._loop = loop
        self._lines: list[str] = []
        self._turn_ends = False
        self._writes = threading.Lock()

    def redacted(self, value: Mapping[str, Any]) -> str:
        return self._redaction.event(value)

    def hide(self, name: str, value: str) -> None:
        """Redact a further secret, which user code passed to us."""
        self._redaction.add({name: value})

    def emit(self, event: HostEvent) -> None:
        """Write an event by the end of this turn of the loop."""
        self._lines.append(self._redaction.event(event))
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def emit_from_thread(self, event: HostEvent) -> None:
        """Write an event at once, from any thread, even if the loop cannot run."""
        self._write(self._redaction.event(event).encode("ascii") + b"\n")

    def send_artifact(self, event: ArtifactEvent) -> None:
        """Write a piece of a file at once and without redaction, from any thread."""
        self._write(dumps(event).encode("ascii") + b"\n")

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        try:
            self._write(("\n".join(lines) + "\n").encode("ascii"))
        except OSError:  # the engine is gone, or user code closed the pipe
            end_process_group()

    def _write(self, lines: bytes) -> None:
        """Write whole lines, one thread after the other."""
        data = memoryview(lines)
        with self._writes:
            while data:
                data = data[write(self._pipe, data) :]

    def _end_turn(self) -> None:
        self._turn_ends = False
        self.turns += 1
        if self._lines:
            self.flush()


def end_process_group() -> None:
    """Kill this process and every process of its group, which includes those that user code started."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)
