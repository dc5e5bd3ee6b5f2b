"""Serves the engine's requests on an event loop in the host's main thread."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from time import monotonic
from typing import Any

from pytest_osmosis.host.clients import Clients, DeniableModel, probed
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.exchanges import HostExchanges
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.interrupt import LoopMonitor
from pytest_osmosis.host.limits import HostLimits
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.permits import grant
from pytest_osmosis.host.pipes import EventWriter, RequestReader
from pytest_osmosis.host.protocol import JUDGE, Key, Request, RunRequest, Setup
from pytest_osmosis.host.user_errors import broken
from pytest_osmosis.text.redaction import Redaction

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
        self._models = {tag: DeniableModel(model, self._denied_by(tag)) for tag, model in clients.items()}
        self._loop = asyncio.new_event_loop()
        self._loop.time = monotonic  # type: ignore[method-assign]  # user code may stop the clock of the module `time`
        self._writer = EventWriter(events, redaction, self._loop)
        self._monitor = LoopMonitor(self._report_stall)
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
        for tag in (Key.of(request).run.model, JUDGE):
            if tag in self._models and self._models[tag].error is not None:
                self._drop(tag)

    def _denied_by(self, tag: str) -> Callable[[str], None]:
        def denied(error: str) -> None:
            self._writer.emit({"ev": "denied", "model_tag": str(tag), "error": error})
            self._drop(tag)

        return denied

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
        task = self._loop.create_task(work)
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

    def _report_stall(self, key: Key, stack: str) -> None:
        """Report code that cannot be interrupted, in the monitor's thread."""
        self._writer.emit_from_thread({"ev": "stalled", **key.to_json(), "stack": stack})


def _run_next(loop: asyncio.AbstractEventLoop, n: int) -> None:
    """Move the `n` callbacks that were added last to the front of the loop's queue.

    The rollout that begins then takes the connection that the last one gave back, before any other rollout continues.
    Clients check at every request which of their idle connections are alive: without this, an agent's own client takes
    a tenth more time (docs/explanation/performance.md). A loop without the private `_ready` is left alone;
    tests/engine/test_engine_in_flight.py notices.
    """
    ready = getattr(loop, "_ready", None)
    if isinstance(ready, deque):
        ready.rotate(n)
