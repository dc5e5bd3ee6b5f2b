"""The host process: pipes, a reader thread, one event loop in the main thread.

The protocol's file descriptors are moved away first, so that whatever user code does with 0, 1 and 2 cannot harm it:
0 reads nothing, 1 and 2 are the run's log. The end of the input means that the engine is gone: the process and all
that it started end at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import os
import platform
import signal
import threading
import time
from collections import deque
from collections.abc import Coroutine
from functools import partial
from io import BufferedReader
from typing import Any

from pytest_osmosis.errors import CodeError
from pytest_osmosis.host import fast_exit, no_debugger, output
from pytest_osmosis.host.clients import Clients, clients_of, probed
from pytest_osmosis.host.core import HostCore, broken
from pytest_osmosis.host.interrupt import LoopMonitor
from pytest_osmosis.host.loading import UserCode, load
from pytest_osmosis.host.protocol import (
    BecomeRequest,
    HostEvent,
    Key,
    RefusedEvent,
    Request,
    RunRequest,
    Setup,
    SetupRequest,
    StalledEvent,
    lines,
)
from pytest_osmosis.host.secret_values import secrets_of
from pytest_osmosis.host.slots import Slots
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.text.redaction import Redaction

READ_BYTES = 1 << 18
COLLECT_AFTER = 10_000
"""The garbage collector looks after so many new objects: rollouts make many, and leave few in circles."""
COLLECT_AFTER_LOADING = 1_000_000
"""As long as code is loaded: imports make many objects, and next to all of them stay."""


def main() -> None:
    """Serve one engine, from its `setup` to the end of the pipe."""
    requests, events = _own_pipes()
    if (begun := _begun(requests)) is None:
        return
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    setup = Setup.from_json(begun)
    redaction = Redaction(secrets_of(setup, os.environ))
    inbox = Inbox(requests)
    output.install(redaction.text)
    no_debugger.install()
    clients = _clients(setup)
    gc.set_threshold(COLLECT_AFTER_LOADING)
    try:
        code = load(setup)
    except CodeError as error:
        refused: RefusedEvent = {"ev": "refused", "error": str(error), "details": error.details}
        os.write(events, redaction.event(refused).encode() + b"\n")
        return
    gc.freeze()  # what the imports made stays to the end: it is not looked through again and again
    if gc.get_threshold()[0] == COLLECT_AFTER_LOADING:  # else user code has its own
        gc.set_threshold(COLLECT_AFTER)
    Host(setup, code, clients, events, redaction).serve(inbox)
    fast_exit.finish()


def _own_pipes() -> tuple[BufferedReader, int]:
    """The protocol's two ends, moved out of the way of user code."""
    requests, events = os.dup(0), os.dup(1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    os.close(null)
    os.register_at_fork(after_in_child=lambda: os.closerange(min(requests, events), max(requests, events) + 1))
    return os.fdopen(requests, "rb"), events


def _begun(requests: BufferedReader) -> SetupRequest | None:
    """The `setup` request, None where nobody wants this host. One that was started ahead becomes what it is first."""
    message: BecomeRequest | SetupRequest | None = json.loads(requests.readline() or "null")
    if message is None or message["op"] == "setup":
        return message
    os.chdir(message["cwd"])
    os.environ.clear()
    os.environ.update(message["environ"])
    time.tzset()
    log = os.open(message["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    return json.loads(requests.readline())  # type: ignore[no-any-return]


def _clients(setup: Setup) -> Clients:
    """The models' clients.

    They are made before user code is imported, so that a user's `openai.py` cannot take their place. Clients describe
    the platform to their servers, which starts a process; asked for here, it is known before user code may fork.
    """
    if setup.role == "roll":
        platform.platform()
    return clients_of(setup, os.environ)


class Inbox:
    """Reads the pipe from a thread of its own, from the start, so that its end is noticed whatever the loop does."""

    def __init__(self, requests: BufferedReader) -> None:
        self._requests = requests
        self._waiting: list[Request] = []
        self._lock = threading.Lock()  # protects _waiting and _host
        self._host: Host | None = None
        threading.Thread(target=self._read, name="osmosis-inbox", daemon=True).start()

    def deliver_to(self, host: Host) -> None:
        """From now on `host` gets what is read, what was read before first."""
        with self._lock:
            self._host = host
            host.post(self._waiting)

    def _read(self) -> None:
        with contextlib.suppress(OSError):  # user code closed it
            for whole in lines(partial(self._requests.read1, READ_BYTES)):
                self._deliver([json.loads(line) for line in whole])
        _end_group()

    def _deliver(self, messages: list[Request]) -> None:
        with self._lock:
            if self._host is None:
                self._waiting += messages
            else:
                self._host.post(messages)


def _end_group() -> None:
    """End this process and all that user code started in its group, at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(0, signal.SIGKILL)
    os._exit(1)


class Host:
    """Connects the loop, the core and the pipe."""

    def __init__(self, setup: Setup, code: UserCode, clients: Clients, events: int, redaction: Redaction) -> None:
        self._setup = setup
        self._code = code
        self._clients = clients
        self._events = events
        self._redaction = redaction
        self._lines: list[str] = []
        self._ending_turn = False
        self._waiting: deque[RunRequest] = deque()
        self._turn = 0
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._loop = asyncio.new_event_loop()
        self._closing = False
        self._closed = False

    def serve(self, inbox: Inbox) -> None:
        """Run until `close`."""
        monitor = LoopMonitor(self._stalled)
        self._slots = Slots(self._setup.limit, self._begin)
        setup, code = self._setup, self._code
        self._core = HostCore(setup, code, self._clients, self._slots, monitor, self._emit, flush=self._flush)
        monitor.start(self._loop)
        self._emit({"ev": "ready", "scorers": code.scorers, "sync": code.synchronous, "digests": code.digests})
        inbox.deliver_to(self)
        while not self._closed:
            # Left by a task of the user's that ends so, or by `stop()` called on it: nothing that waits there is lost.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        for client in self._clients.values():
            self._loop.run_until_complete(client.close())

    def post(self, messages: list[Request]) -> None:
        """Hand messages to the loop, from any thread."""
        self._loop.call_soon_threadsafe(self._handle, messages)

    def _handle(self, messages: list[Request]) -> None:
        for message in messages:
            match message["op"]:
                case "run":
                    self._waiting.append(message)
                case "score":
                    self._spawn(self._core.score(message), Key.of(message))
                case "limit":
                    self._core.resize(message["limit"])
                case "hold":
                    self._core.hold(message["wait_s"])
                case "permit":
                    self._core.permitted(message["ids"])
                case "pause" | "resume" as op:
                    self._core.pause(op == "pause")
                case "drop":
                    self._drop(message["model_tag"])
                case "probe":
                    self._spawn(self._probe(ModelTag(message["model_tag"])))
                case "close" if not self._closing:  # the engine may say it twice
                    self._closing = self._core.closing = True
                    self._loop.create_task(self._close())
        self._begin()

    def _begin(self) -> None:
        begun = 0
        while self._waiting and not self._closing and self._slots.begin():
            self._roll(self._waiting.popleft())
            begun += 1
        ending = asyncio.current_task(self._loop)
        if ending is not None and self._tasks.get(ending, self._turn) < self._turn:  # else it may never have waited
            _next(self._loop, begun)

    def _roll(self, request: RunRequest) -> None:
        """Begin a rollout that has its slot. User code that cancels all tasks may end it before it runs."""
        performs = False

        async def perform() -> None:
            nonlocal performs
            performs = True
            await self._core.perform(request)

        self._spawn(perform(), Key.of(request)).add_done_callback(
            lambda _: None if performs else self._slots.end(holding=True)
        )

    def _drop(self, tag: str | None) -> None:
        """Give back the runs that have not begun: all of them, or those of one model."""
        waiting = [(Key.of(request), request) for request in self._waiting]
        dropped = [key for key, _ in waiting if tag in (None, key.run.model)]
        self._waiting = deque(request for key, request in waiting if key not in dropped)
        self._emit({"ev": "dropped", "runs": [key.to_json() for key in dropped]})

    def _spawn(self, work: Coroutine[Any, Any, None], key: Key | None = None) -> asyncio.Task[None]:
        task = self._loop.create_task(work)
        self._tasks[task] = self._turn
        task.add_done_callback(lambda done: self._done(done, key))
        return task

    def _done(self, task: asyncio.Task[None], key: Key | None) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if (error is not None or task.cancelled()) and key is not None and not self._closing:
            self._emit(broken(key, error))

    async def _probe(self, tag: ModelTag) -> None:
        self._emit(await probed(self._clients, tag))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks, timeout=1.0) if self._tasks else None
        self._closed = True
        self._loop.stop()

    def _emit(self, event: HostEvent) -> None:
        """Put an event on its way: what one turn of the loop emits is written at once, at the latest."""
        self._lines.append(self._redaction.event(event))
        if not self._ending_turn:
            self._ending_turn = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        self._ending_turn = False
        self._turn += 1
        if self._lines:
            self._flush()

    def _flush(self) -> None:
        data = memoryview(("\n".join(self._lines) + "\n").encode("ascii"))
        self._lines = []
        try:
            while data:
                data = data[os.write(self._events, data) :]
        except OSError:  # the engine is gone, or user code closed the pipe
            _end_group()

    def _stalled(self, key: Key, stack: str) -> None:
        """Called from the watch's thread, while the loop cannot run."""
        stalled: StalledEvent = {"ev": "stalled", **key.to_json(), "stack": stack}
        os.write(self._events, self._redaction.event(stalled).encode("ascii") + b"\n")


def _next(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """Let the `n` callbacks that came last be the next.

    A connection that one rollout has given back is then taken by the one that begins in its place, and is never idle:
    clients ask each idle connection of theirs for a sign of life at every request.
    """
    ready = getattr(loop, "_ready", None)
    if isinstance(ready, deque):
        ready.rotate(n)
