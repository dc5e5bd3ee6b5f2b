"""The core of a host in this process: it rolls out with functions of the test, on a loop whose time the test advances.

The client and the server are real, and everything that decides by time goes by the clock.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import Any

from aiohttp import web

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.host.chat import clients_of
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.deadline import LoopMonitor
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.protocol import HostCode, RunRequest, Setup
from pytest_osmosis.host.slots import HostLimits
from pytest_osmosis.judges.judge import RubricScorer
from pytest_osmosis.models.retry import DeniableModel
from pytest_osmosis.models.targets import resolve
from pytest_osmosis.rewards.graders import EvalFunction, GraderCode
from pytest_osmosis.rollouts.agents import ChatContext, FunctionAgent, ThreadedFunctionAgent
from tests.clocks import LoopClock
from tests.servers import Behaviour, ChatServer, Exchange

DEADLINE_S = 60.0


async def asks_once(ctx: ChatContext) -> None:
    await ctx.chat(ctx.prompt)


def after(gate: threading.Event, then: Behaviour) -> Behaviour:
    """Answers once the test has opened the gate."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        while not gate.is_set():  # noqa: ASYNC110  # the test has another thread
            await asyncio.sleep(0.002)
        return await then(exchange)

    return behave


def rubric_judge(server: ChatServer, **fields: Any) -> dict[str, Any]:
    """Return the judge of a setup that asks a server whether an answer is right."""
    judge = resolve("the-judge", ModelTable(base_url=server.base_url), {}, where="x")
    target = {"model": "the-judge", "base_url": server.base_url, "target": judge.to_json(), "system_prompt": ""}
    sight = {"rubric": "Right?", "score_range": (0, 1), "votes": 1, "sees": "answer", "metadata": (), "sampling": {}}
    return {**target, **sight, **fields}


class CoreHost:
    """Begins its runs in order, within its limits, and keeps the events in `events`."""

    def __init__(
        self,
        server: ChatServer,
        agent: Callable[[ChatContext], Any] | ThreadedFunctionAgent,
        limit: int,
        functions: tuple[EvalFunction, ...],
        grader: GraderCode | None,
        **setup: Any,
    ) -> None:
        self.server = server
        self.clock = LoopClock()
        self.events: list[Mapping[str, Any]] = []
        table = ModelTable(base_url=server.base_url, **setup.pop("model", {}))
        target = resolve("served", table, {}, where="x").to_json()
        setup = {"scores_at_once": False, **setup}
        code = HostCode("roll", ".", (), target, judge=setup.pop("judge", None))
        self._setup = Setup(code, limit=limit, max_limit=limit, **setup)
        self._clients = {tag: DeniableModel(each, print) for tag, each in clients_of(self._setup, {}).items()}
        self._endpoint = HostEndpoint(code, {})
        self._limits = HostLimits(limit, self._begin)
        self._monitor = LoopMonitor(lambda key, stack: None)
        rubric = None if code.judge is None else RubricScorer.of(code.judge)
        made = agent if isinstance(agent, ThreadedFunctionAgent) else FunctionAgent("rollout", agent)
        loaded = UserCode(made, functions, grader, {}, rubric)
        self.core = HostCore(self._setup, loaded, self._clients, self._endpoint, self._limits, self._monitor, self)
        self._waiting: deque[RunRequest] = deque()
        self._tasks: list[asyncio.Task[None]] = []

    def run(self, *rows: int, **fields: Any) -> None:
        """Let a run of each row wait for its slot; its prompt is "row N". `fields` are further ones of its request."""
        for row in rows:
            request: Any = {"op": "run", "row": row, "run": 0, "attempt": 1, "record": {}, "ground_truth": None}
            request |= {"prompt": [{"role": "user", "content": f"row {row}"}], "seed": None}
            self._waiting.append(request | fields)
        self._begin()

    def score(self, row: int, *names: str, **fields: Any) -> None:
        """Let functions score an answer of "42" to a row. `fields` are further ones of the run."""
        messages = [{"role": "user", "content": f"row {row}"}, {"role": "assistant", "content": "42"}]
        run: Any = {"row": row, "run": 0, "attempt": 1, "record": {}, "ground_truth": "42", "environment": {}}
        run |= {"messages": messages, "n_prompt": 1, "metrics": {}, "samples": ()}
        self._tasks.append(asyncio.create_task(self.core.score(names, [run | fields])))

    def _begin(self) -> None:
        while self._waiting and self._limits.slots.begin():
            self._tasks.append(asyncio.create_task(self.core.perform(self._waiting.popleft())))

    def stall(self, seconds: float) -> None:
        """Let time pass in which code of another rollout holds the loop."""
        self.clock.time += seconds
        self._monitor.stalls.total_s += seconds

    async def heard(self, ev: str, row: int, **fields: Any) -> Mapping[str, Any]:
        """Wait for an event of a row, and return it. No time passes meanwhile; fails after a deadline."""
        wanted = {"ev": ev, "row": row, **fields}
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            for event in self.events:
                if wanted.items() <= event.items():
                    return event
            await asyncio.to_thread(time.sleep, 0.002)
        raise AssertionError(f"no {wanted} in {self.events}")

    async def asked(self, n: int) -> None:
        await asyncio.to_thread(self.server.wait_for, lambda server: len(server.requests) == n)

    async def rollout(self, row: int) -> Mapping[str, Any]:
        return await self.heard("rollout", row)

    async def close(self) -> None:
        self.core.closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.core.close()
        await self._endpoint.close()
        for client in self._clients.values():
            await client.close()

    # -- the sink of events ------------------------------------------------------------------------------------------

    def emit(self, event: Any) -> None:
        self.events.append(event)

    emit_from_thread = send_artifact = emit

    def flush(self) -> None:
        """Keep nothing back."""

    def redacted(self, value: Mapping[str, Any]) -> str:
        return json.dumps(value)

    def hide(self, name: str, value: str) -> None:
        """Hide nothing."""


@asynccontextmanager
async def core_host(
    server: ChatServer | Behaviour,
    agent: Callable[[ChatContext], Any] | ThreadedFunctionAgent = asks_once,
    limit: int = 1,
    functions: tuple[EvalFunction, ...] = (),
    grader: GraderCode | None = None,
    **setup: Any,
) -> AsyncIterator[CoreHost]:
    """A host of `limit` rollouts in flight, closed in the end; `setup` are further fields of its setup.

    If its server is given by how that behaves, it has a server of its own.
    """
    asking: AbstractContextManager[ChatServer]
    asking = nullcontext(server) if isinstance(server, ChatServer) else ChatServer(server)
    with asking as asked:
        host = CoreHost(asked, agent, limit, functions, grader, **setup)
        try:
            yield host
        finally:
            await host.close()
