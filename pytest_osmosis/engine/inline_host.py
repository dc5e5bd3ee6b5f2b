"""A host in this process, for debuggers: user code runs in the thread that calls `serve`, one request at a time.

It uses the same `HostCore` as a host process, without pipe, deadlines, monitor and captured output. The engine cannot
tell the difference: it sends requests and gets events, and the journal is the same.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import queue
import sys
import warnings
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import replace

from pytest_osmosis import seams
from pytest_osmosis.engine.host_connection import Heard, HostEnviron, Post
from pytest_osmosis.errors import CodeError
from pytest_osmosis.host.chat import Clients, clients_of, deniable, probed
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.deadline import LoopMonitor, MonitoredCode
from pytest_osmosis.host.exchanges import opened_store
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode, load
from pytest_osmosis.host.protocol import (
    ArtifactEvent,
    HostEvent,
    Key,
    PermitRequest,
    ProbeRequest,
    Request,
    RunRequest,
    ScoreGroupRequest,
    ScoreRequest,
    ScoringFields,
    Setup,
    secrets_of,
)
from pytest_osmosis.host.slots import HostLimits, grant
from pytest_osmosis.host.user_errors import broken
from pytest_osmosis.rewards.graders import Reward
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.text.user_code import is_installed

PACKAGE = __name__.partition(".")[0]


class Snapshot(NamedTuple):
    """The state of a process that user code may change; `path` is None for that of now without the eval's roots."""

    folder: str
    environ: Mapping[str, str]
    path: list[str] | None
    path_hooks: list[Any]
    modules: Mapping[str, ModuleType]


class ProcessState:
    """One eval's state of this process: its `folder`, `environ`, and the modules imported from its `roots`."""

    def __init__(self, folder: str, environ: Mapping[str, str], roots: Sequence[str]) -> None:
        self._roots = tuple(os.path.join(os.path.abspath(root), "") for root in roots)  # noqa: PTH100, PTH118
        self._inside = Snapshot(folder, dict(environ), None, list(sys.path_hooks), {})

    @contextmanager
    def active(self) -> Iterator[None]:
        """A context for user code. Changes that the code makes are undone on leaving and restored on the next entry."""
        outside = self._taken()
        self._restore(self._inside)
        try:
            with warnings.catch_warnings():
                warnings.resetwarnings()
                yield
        finally:
            self._inside = self._taken()
            self._restore(outside)

    def _taken(self) -> Snapshot:
        """Return the present state; modules of the user are removed with it."""
        folder = os.getcwd()  # noqa: PTH109
        return Snapshot(folder, dict(os.environ), list(sys.path), list(sys.path_hooks), self._take_modules())

    def _restore(self, then: Snapshot) -> None:
        os.chdir(then.folder)
        for name in os.environ.keys() - then.environ.keys():
            del os.environ[name]
        os.environ.update(then.environ)
        sys.path[:] = [each for each in sys.path if not self._is_users(each)] if then.path is None else then.path
        if sys.path_hooks != then.path_hooks:
            sys.path_hooks[:] = then.path_hooks
            sys.path_importer_cache.clear()
        sys.modules.update(then.modules)

    def _take_modules(self) -> dict[str, ModuleType]:
        """Remove modules that were imported from the roots from `sys.modules`, and return them."""
        modules = {
            name: module
            for name, module in list(sys.modules.items())
            if name.partition(".")[0] != PACKAGE and any(map(self._is_users, _files(module)))
        }
        for name in modules:
            del sys.modules[name]
        return modules

    def _is_users(self, path: str) -> bool:
        """Return True for a file or folder in the roots that is not installed. "" is the current folder."""
        inside = os.path.join(os.path.abspath(path), "").startswith(self._roots)  # noqa: PTH100, PTH118
        return inside and not is_installed(path)


def _files(module: ModuleType) -> Sequence[str]:
    """Return the file of a module, or the folders of a package without a file."""
    file = getattr(module, "__file__", None)
    if isinstance(file, str):
        return (file,)
    with contextlib.suppress(Exception):
        return [str(folder) for folder in module.__path__]
    return ()


T = TypeVar("T")


InlineRequest = ProbeRequest | RunRequest | ScoreRequest | ScoreGroupRequest

IDLE_S = 0.1
UNWIND_S = 1.0
"""The time that an interrupted task has to end."""

Around = Callable[[], AbstractContextManager[None]]
"""Returns what is entered around user code."""


class Loop:
    """One event loop for all inline hosts, made when it is first needed."""

    def __init__(self) -> None:
        self.interrupted = False
        self._made: asyncio.AbstractEventLoop | None = None

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Return what `work` returns, or raise what it raises. Ctrl-C ends `work` too, and is raised."""
        self.interrupted = False
        loop = self._made = self._made or asyncio.new_event_loop()
        task = loop.create_task(work)
        try:
            while not task.done():
                with contextlib.suppress(SystemExit):  # of a task that user code left behind
                    loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self.interrupted = True
                task.cancel()
                loop.run_until_complete(asyncio.wait([task], timeout=UNWIND_S))
            raise
        return task.result()

    def close(self) -> None:
        """Cancel the tasks that user code left behind, and close the loop."""
        loop, self._made = self._made, None
        if loop is None:
            return
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks, timeout=UNWIND_S))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


class Unmonitored(LoopMonitor):
    """Monitors nothing: code in this process may take its time. `around` is entered around user code."""

    def __init__(self, around: Around) -> None:
        super().__init__(lambda key, stack: None)
        self._around = around
        self._entered = ExitStack()

    def begin(self, code: MonitoredCode) -> None:
        super().begin(code)
        self._entered.enter_context(self._around())

    def end(self) -> None:
        self._entered.close()
        super().end()


class InlineConnection:
    """A connection to an `InlineHost`, which ignores limits, pauses and `close`."""

    gather_s = 0.0
    delay_s = 0.0
    placed_at: float | None = 0.0
    waits_for = ""

    def __init__(
        self, name: str, post: Post, give: Callable[[InlineConnection, InlineRequest | PermitRequest], None]
    ) -> None:
        self.name = name
        self.post = post
        self._give = give

    def send(self, messages: Iterable[Request]) -> None:
        """Hand requests to the host; others are dropped."""
        for message in messages:
            match message["op"]:
                case "run" | "score" | "score_group" | "probe" | "permit":
                    self._give(self, message)

    def kill(self) -> None:
        pass  # the process is ours

    def join(self, timeout_s: float) -> bool:
        return True

    def last_words(self) -> str:
        return ""


class InlineHost:
    """The host of one eval. `spawn` and `wake` may be called from any thread, all else from the thread that serves.

    `around` is entered around user code. Errors of type `through` are not failures of user code: they end the request,
    and `serve` raises them. `error` is the error that the last rollout raised, with its own traceback.
    """

    def __init__(self, loop: Loop, around: Around, through: tuple[type[BaseException], ...]) -> None:
        self.error: BaseException | None = None
        self._loop = loop
        self._around = around
        self._through = through
        self._inbox: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._connection: InlineConnection | None = None
        self._setup: Setup | None = None
        self._environ: Mapping[str, str] = {}
        self._code: UserCode | None = None
        self._clients: Clients = {}
        self._process_state: ProcessState | None = None
        self._sdk_shim = seams.sdk_shim()

    def spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> InlineConnection:
        """Return a connection to this host. For the first one, `load` or `serve` loads the user's code."""
        if self._setup is None:
            self._setup, self._environ = setup, environ.merged
        connection = InlineConnection(name, post, self._accept)
        self._inbox.put(partial(self._answer_to_setup, connection))
        return connection

    def _accept(self, connection: InlineConnection, request: InlineRequest | PermitRequest) -> None:
        """Keep a request for `serve`, but grant permits at once: the request that runs waits for them."""
        if request["op"] == "permit":
            grant(request["ids"])
        else:
            self._inbox.put(partial(self._perform, connection, request))

    def load(self) -> None:
        """Wait for the first connection, and load the user's code."""
        self._inbox.get()()

    def serve(self, until: Callable[[], bool]) -> None:
        """Perform requests until the condition holds; `wake` has it checked."""
        while not until():
            with contextlib.suppress(queue.Empty):
                self._inbox.get(timeout=IDLE_S)()

    def wake(self) -> None:
        """Let `serve` check its condition. May be called from any thread."""
        self._inbox.put(lambda: None)

    def borrow(self, setup: Setup, environ: Mapping[str, str]) -> UserCode:
        """Return the user's code to be replayed, and load it if that was not done. Raises `CodeError`."""
        if self._setup is None:
            self._setup, self._environ = replace(setup, code=replace(setup.code, role="score")), environ
        return self._loaded_code()

    def replay(self, request: ScoringFields, name: str) -> Reward:
        """Return the reward for a recorded conversation by the function `name`; raise what user code raises."""
        with self.inside(), self._endpoint.withdrawn():
            return self._loop.run(self._core.replay(request, name))

    def close(self) -> None:
        if self._code is not None:
            with self.inside():
                self._loop.run(self._endpoint.close())
                self._loop.run(self._core.close())
        clients, self._clients = self._clients, {}
        for client in clients.values():
            with self.inside():
                self._loop.run(client.close())

    def _perform(self, connection: InlineConnection, request: InlineRequest) -> None:
        self._connection = connection
        match request["op"]:
            case "probe":
                self.emit(self._loop.run(probed(self._clients, request["model_tag"])))
            case "run":
                self.error = None
                if not self._limits.slots.begin():
                    self.emit({**broken(Key.of(request), None), "error": "the run before it has not ended"})
                elif not self._run(Key.of(request), self._core.perform(request)):
                    self._limits.slots.end(holding=True)
            case "score":
                self._run(Key.of(request), self._core.score(request["names"], [request]), scores=True)
            case "score_group":
                self._run(Key.of(request["runs"][0]), self._core.score(request["names"], request["runs"]), scores=True)

    def _run(self, key: Key, work: Coroutine[Any, Any, None], *, scores: bool = False) -> bool:
        """Do some work; return False if code that a run left behind cancelled it before it began."""
        try:
            with self.inside(), self._endpoint.withdrawn() if scores else nullcontext():
                self._loop.run(work)
        except asyncio.CancelledError:
            self.emit(broken(key, None))
            return False
        return True

    def _answer_to_setup(self, connection: InlineConnection) -> None:
        self._connection = connection
        try:
            self.emit(self._loaded_code().ready)
        except CodeError as error:
            self.emit({"ev": "refused", "error": str(error), "details": error.details})

    def _loaded_code(self) -> UserCode:
        """Return the user's code, loaded the first time. Raises `CodeError`."""
        if self._code is None:
            setup = self._setup
            assert setup is not None
            with self.inside():
                self._redaction = Redaction(secrets_of(setup.code, os.environ))
                store = opened_store(setup)
                self._clients = clients_of(setup, os.environ)
                self._endpoint = HostEndpoint(setup.code, os.environ)
                if setup.code.role == "roll":
                    self._endpoint.set_variables(hooks=False)
                code = load(setup)
                notes = self._sdk_shim.notes if self._sdk_shim is not None else ()
                self._code = replace(code, notes=(*code.notes, *notes))
            self._limits = HostLimits(setup.limit, lambda: None)
            monitor = Unmonitored(self._around)
            models = deniable(self._clients, self._denied)
            self._core = HostCore(
                setup, self._code, models, self._endpoint, self._limits, monitor, self, store, self._raised
            )
        return self._code

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A context in which this process has the folder, environment and modules of the eval."""
        setup, shim = self._setup, self._sdk_shim
        assert setup is not None
        if self._process_state is None:
            roots = setup.code.roots if setup.mcp is None else (*setup.code.roots, setup.mcp)
            self._process_state = ProcessState(setup.code.workspace, self._environ, roots)
        with self._process_state.active(), nullcontext() if shim is None else shim.active(setup.code.sdk_shim):
            yield

    def _denied(self, tag: str, error: str) -> None:
        self.emit({"ev": "denied", "model_tag": tag, "error": error})

    def _raised(self, key: Key, error: BaseException) -> None:
        if self._loop.interrupted or isinstance(error, self._through):
            raise error
        self.error = self.error or error

    def send_artifact(self, event: ArtifactEvent) -> None:
        """Drop a piece of a file: user code of this process writes into the run directory itself."""

    def emit_from_thread(self, event: HostEvent) -> None:
        self.emit(event)

    def flush(self) -> None:
        """Return at once: each event is sent when it is emitted."""

    def redacted(self, value: Mapping[str, Any]) -> str:
        return self._redaction.event(value)

    def hide(self, name: str, value: str) -> None:
        self._redaction.add({name: value})

    def emit(self, event: HostEvent) -> None:
        assert self._connection is not None
        raw = self._redaction.event(event)
        self._connection.post(Heard(self._connection, [(json.loads(raw), raw.encode("ascii") + b"\n")]))
