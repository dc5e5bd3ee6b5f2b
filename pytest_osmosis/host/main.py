"""The host process: takes its pipes, loads the user's code, serves one engine on an event loop, ends.

The file descriptors of the protocol are moved away first, so that user code cannot harm it through 0, 1 and 2: 0 reads
nothing, 1 and 2 are the log. The end of the input means that the engine is gone: the process and all that it started
are killed at once.

Requests are read in a thread, events are written once per loop turn. Functions of the standard library are imported by
name, so that user code cannot replace them in their modules.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import faulthandler
import gc
import json
import os
import platform
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from io import BufferedReader
from os import write
from pathlib import Path
from time import monotonic
from typing import Any

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.endpoint.rollouts import changed_environ
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host import output
from pytest_osmosis.host.chat import Clients, clients_of, deniable, probed
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.deadline import LoopMonitor
from pytest_osmosis.host.exchanges import HostExchanges, opened_store
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode, load, load_environment
from pytest_osmosis.host.protocol import (
    JUDGE,
    ArtifactEvent,
    BecomeRequest,
    HostCode,
    HostEvent,
    Key,
    RefusedEvent,
    Request,
    RunRequest,
    Setup,
    SetupRequest,
    TellRequest,
    ToldEvent,
    encode,
    line_of,
    lines,
    read_request,
    secrets_of,
)
from pytest_osmosis.host.slots import HostLimits, grant
from pytest_osmosis.host.user_errors import broken, raise_no_terminal
from pytest_osmosis.processes.child import allow_many_files, leave_no_core_file
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.safe import dumps

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
                requests = [read_request(line) for line in read]
                with self._lock:
                    if self._receive is None:
                        self._waiting += requests
                    else:
                        self._receive(requests)
        finally:  # the engine is gone, or user code closed the pipe or broke what reads it: nothing would be heard
            end_process_group()


class EventWriter:
    """Writes events (`EventSink`): those of one turn of the loop together, at its end or when `flush` is called.

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
        self._redaction.add({name: value})

    def emit(self, event: HostEvent) -> None:
        self._lines.append(self._redaction.event(event, line_of))
        if not self._turn_ends:
            self._turn_ends = True
            self._loop.call_soon(self._end_turn)

    def emit_from_thread(self, event: HostEvent) -> None:
        self._write(self._redaction.event(event).encode("ascii") + b"\n")

    def send_artifact(self, event: ArtifactEvent) -> None:
        self._write(dumps(event).encode("ascii") + b"\n")

    def flush(self) -> None:
        lines, self._lines = self._lines, []
        try:
            self._write(("\n".join(lines) + "\n").encode("ascii"))
        except OSError:  # the engine is gone, or user code closed the pipe
            end_process_group()

    def _write(self, lines: bytes) -> None:
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


CLOSE_S = 1.0
"""Tasks that were cancelled at the end get this long."""


class HostServer:
    """Serves requests until `close`: connects the event loop, the core and the pipes. Runs wait here for a slot."""

    def __init__(
        self,
        setup: Setup,
        code: UserCode,
        clients: Clients,
        endpoint: HostEndpoint,
        events: int,
        redaction: Redaction,
        store: HostExchanges | None = None,
    ) -> None:
        self._code = code
        self._teardown_s = setup.teardown_s
        self._clients = clients
        self._models = deniable(clients, self._denied)
        self._loop = asyncio.new_event_loop()
        self._loop.time = monotonic  # type: ignore[method-assign]  # user code may stop the clock of the module `time`
        self._writer = EventWriter(events, redaction, self._loop)
        self._monitor = LoopMonitor(
            lambda key, stack: self._writer.emit_from_thread({"ev": "stalled", **key.to_json(), "stack": stack})
        )
        self._limits = HostLimits(setup.limit, self._begin_rollouts)
        self._core = HostCore(setup, code, self._models, endpoint, self._limits, self._monitor, self._writer, store)
        self._waiting: deque[RunRequest] = deque()
        self._tasks: dict[asyncio.Task[None], int] = {}
        self._closing = False
        self._closed = False

    def serve(self, reader: RequestReader) -> None:
        self._monitor.start(self._loop)
        self._writer.emit(self._code.ready)
        reader.deliver_to(self._post)
        while not self._closed:
            # A task of user code may end the loop by such an error or by `stop()`; everything in the loop continues.
            with contextlib.suppress(SystemExit, KeyboardInterrupt):
                self._loop.run_forever()
        for client in self._clients.values():
            self._loop.run_until_complete(client.close())

    def _post(self, requests: list[Request]) -> None:
        """Take requests in the reader's thread. Permits must not wait for the loop."""
        for request in requests:
            if request["op"] == "permit":
                grant(request["ids"])
        self._loop.call_soon_threadsafe(self._handle, requests)

    def _handle(self, requests: list[Request]) -> None:
        for request in requests:
            match request["op"]:
                case "run":
                    self._accept(request)
                case "score":
                    self._spawn(self._core.score(request["names"], [request]), Key.of(request))
                case "score_group":
                    self._spawn(self._core.score(request["names"], request["runs"]), Key.of(request["runs"][0]))
                case "limit":
                    self._limits.resize(request["limit"], request["begun"], request["scorings"])
                    self._writer.emit({"ev": "limited"})
                case "hold":
                    self._limits.hold(request["wait_s"])
                case "pause" | "resume" as op:
                    self._limits.pause(op == "pause")
                case "drop":
                    self._drop(request["model_tag"])
                case "deny" if request["model_tag"] in self._models:  # a host that only scores does not ask the model
                    self._models[request["model_tag"]].error = request["error"]
                case "probe":
                    self._spawn(self._probe(request["model_tag"]))
                case "close" if not self._closing:  # the engine may send it twice
                    self._closing = self._core.closing = True
                    self._loop.create_task(self._close())
        self._begin_rollouts()

    def _accept(self, request: RunRequest) -> None:
        """Let a run wait for its slot, or give it back if its model or its judge denies all requests."""
        self._waiting.append(request)
        for tag in (RunId.of(request).model, JUDGE):
            if tag in self._models and self._models[tag].error is not None:
                self._drop(tag)

    def _denied(self, tag: str, error: str) -> None:
        self._writer.emit({"ev": "denied", "model_tag": str(tag), "error": error})
        self._drop(tag)

    def _begin_rollouts(self) -> None:
        begun = 0
        while self._waiting and not self._closing and self._limits.slots.begin():
            self._begin_rollout(self._waiting.popleft())
            begun += 1
        ending = asyncio.current_task(self._loop)
        turns = self._writer.turns
        if ending is not None and self._tasks.get(ending, turns) < turns:
            # It took more than one turn. Rollouts that never wait must not run one after another before all others.
            _run_next(self._loop, begun)

    def _begin_rollout(self, request: RunRequest) -> None:
        """Begin a rollout that has its slot. User code that cancels all tasks may end it before it runs."""
        performs = False

        async def perform() -> None:
            nonlocal performs
            performs = True
            await self._core.perform(request)

        self._spawn(perform(), Key.of(request)).add_done_callback(
            lambda _: None if performs else self._limits.slots.end(holding=True)
        )

    def _drop(self, tag: str | None) -> None:
        """Give back the runs that have not begun: all of them, also for the judge, or those of one model."""
        waiting = [(Key.of(request), request) for request in self._waiting]
        dropped = [key for key, _ in waiting if tag in (None, JUDGE, key.run.model)]
        self._waiting = deque(request for key, request in waiting if key not in dropped)
        self._writer.emit({"ev": "dropped", "runs": [key.to_json() for key in dropped]})

    def _spawn(self, work: Coroutine[Any, Any, None], key: Key | None = None) -> asyncio.Task[None]:
        task = asyncio.Task(work, loop=self._loop)  # it belongs to no run, not even to the one that made room for it
        self._tasks[task] = self._writer.turns
        task.add_done_callback(lambda done: self._forget(done, key))
        return task

    def _forget(self, task: asyncio.Task[None], key: Key | None) -> None:
        del self._tasks[task]
        error = None if task.cancelled() else task.exception()
        if (error is not None or task.cancelled()) and key is not None and not self._closing:
            self._writer.emit(broken(key, error))

    async def _probe(self, tag: str) -> None:
        self._writer.emit(await probed(self._clients, tag))

    async def _close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=CLOSE_S)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self._core.close(), CLOSE_S + self._teardown_s)
        self._closed = True
        self._loop.stop()


def _run_next(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """Move the `n` callbacks that were added last to the front of the loop's queue.

    The rollout that begins then takes the connection that the last one gave back, before any other rollout continues.
    Clients check at every request which of their idle connections are alive: without this, an agent's own client takes
    a tenth more time. A loop without the private `_ready` is left alone; tests/engine/test_engine_in_flight.py notices.
    """
    ready = getattr(loop, "_ready", None)
    if isinstance(ready, deque):
        ready.rotate(n)


# -- the process -------------------------------------------------------------------------------------------

THREADS_S = 0.5
"""At the end, threads that user code left running get this long."""
COLLECT_AFTER = 10_000
"""The threshold of the garbage collector: rollouts make many objects, and few of them in cycles."""
COLLECT_AFTER_LOADING = 1_000_000
"""The threshold while code is loaded: imports make many objects, and nearly all of them stay."""


def main() -> None:
    """Serve one engine, from its `setup` to its `close`. Before `setup` it may be asked for the rows of an
    environment."""
    requests, events = take_pipes()
    request = _next_request(requests)
    if request is None:
        return
    code, environ = HostCode.from_json(request), dict(os.environ)
    redaction = Redaction(secrets_of(code, environ))
    _prepare_process(redaction)
    endpoint, sdk_shim, environment = HostEndpoint(code, environ), seams.sdk_shim(), None
    if request["op"] == "tell":
        with contextlib.suppress(Exception):  # a listing has no keys, and a replay needs none
            _clients(Setup(code), environ)  # imported now, and made once more for the eval
        _begin_to_load(code, endpoint, sdk_shim)
        environment = _tell(Path(request["rows"]), code, events, redaction)
        request = None if environment is None else _next_request(requests)
        if request is None or request["op"] == "tell":  # it tells them once
            if environment is not None:
                seams.release(environment)
            _finish()
            return
    setup = Setup.from_json(request)
    if setup.sends_artifacts:
        _ = seams.ArtifactSender  # imported now, because user code may replace what it calls
    reader = RequestReader(requests)
    reader.start()
    as_given = {name: environ.get(name) for name in {*environ, *os.environ}}  # an environment may have changed it
    with changed_environ(as_given):
        clients = _clients(setup, environ)
    if environment is None:
        _begin_to_load(code, endpoint, sdk_shim)
    try:
        store = opened_store(setup)
        user_code = _load(setup, sdk_shim, environment)
    except CodeError as error:
        _refuse(error, events, redaction)
        return
    HostServer(setup, user_code, clients, endpoint, events, redaction, store).serve(reader)
    _finish()


def _next_request(requests: BufferedReader) -> TellRequest | SetupRequest | None:
    """Return the next request, or None if there is nothing to do. A prestarted host first becomes another's process."""
    line = requests.readline()
    if not line:  # the engine is gone
        end_process_group()
    message: Any = json.loads(line)
    if message["op"] == "become":
        _become(message)
        return _next_request(requests)
    return None if message["op"] == "close" else message


def _become(message: BecomeRequest) -> None:
    if message["environ"] is not None:
        os.chdir(message["cwd"])
        os.environ.clear()
        os.environ.update(message["environ"])
        time.tzset()
    log = os.open(message["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _prepare_process(redaction: Redaction) -> None:
    leave_no_core_file()
    allow_many_files()
    faulthandler.enable(all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    output.install(redaction.text)
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = raise_no_terminal


def _clients(setup: Setup, environ: Mapping[str, str]) -> Clients:
    """Return the models' clients.

    They are made before user code is imported, so that a user's `openai.py` cannot take their place. Clients describe
    the platform to their servers, and finding that out starts a process; do it before user code may fork.
    """
    code = setup.code
    if code.role == "roll" and any(target["client"] != "embedded" for target in code.model_targets.values()):
        platform.platform()
    return clients_of(setup, environ)


def _tell(rows: Path, code: HostCode, events: int, redaction: Redaction) -> seams.LoadedEnvironment | None:
    """Load an environment and tell its rows. Returns None if it does not load, which is told too."""
    try:
        environment = load_environment(code)
        told: ToldEvent = {"ev": "told", "facts": seams.environment_facts(environment, code, rows)}
        os.write(events, encode([told]))
    except CodeError as error:
        _refuse(error, events, redaction)
        return None
    return environment


def _refuse(error: CodeError, events: int, redaction: Redaction) -> None:
    event: RefusedEvent = {"ev": "refused", "error": str(error), "details": error.details}
    os.write(events, redaction.event(event).encode() + b"\n")


def _begin_to_load(code: HostCode, endpoint: HostEndpoint, sdk_shim: seams.SdkShim | None) -> None:
    """Prepare this process for user code, with few garbage collections while it loads."""
    if code.role == "roll":
        endpoint.set_variables()
    gc.set_threshold(COLLECT_AFTER_LOADING)
    gc.enable()  # what started this process imported us without
    if code.sdk_shim and sdk_shim is not None:
        sdk_shim.install()


def _load(setup: Setup, sdk_shim: seams.SdkShim | None, environment: seams.LoadedEnvironment | None) -> UserCode:
    """Load the user's code. What stands in for `osmosis_ai` stays installed."""
    code = load(setup, environment)
    code = replace(code, notes=(*code.notes, *(sdk_shim.notes if sdk_shim is not None else ())))
    gc.freeze()  # imported objects stay to the end, so no later collection needs to look at them
    if gc.get_threshold()[0] == COLLECT_AFTER_LOADING:  # else user code has set its own
        gc.set_threshold(COLLECT_AFTER)
    return code


def _finish() -> None:
    """Let the process end without tearing down its modules, which would only take time. Exit handlers run.

    Threads that user code left running get `THREADS_S`. Without `atexit._run_exitfuncs` they would keep the host alive
    until the engine kills it; tests/engine/test_engine_hosts.py notices.
    """

    def end() -> None:
        timer.cancel()
        atexit.unregister(end)
        atexit._run_exitfuncs()
        with contextlib.suppress(Exception):  # user code may have replaced it
            sys.stdout.flush()
        os._exit(0)

    timer = threading.Timer(THREADS_S, end)
    timer.daemon = True
    timer.start()
    atexit.register(end)  # the interpreter calls it, before all others, once it has waited for the threads
