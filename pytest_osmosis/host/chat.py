"""The model requests of rollouts: within the host's limits, with permits and retries."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING

from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.host.clients import Clients
from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.limits import HostLimits
from pytest_osmosis.host.permits import PermitClient, permit_for
from pytest_osmosis.host.protocol import Emit, Key, Setup
from pytest_osmosis.host.retry_waits import OverloadDetector, RetryWaits
from pytest_osmosis.host.slots import ModelRequest, RolloutSlot
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage

if TYPE_CHECKING:
    from pytest_osmosis.host.standby_gateway import StandbyGateway

OTHER_LOOP = (
    "ctx.chat must be awaited in its rollout's event loop; from a thread: asyncio.run_coroutine_threadsafe("
    "ctx.chat(...), loop).result(), where loop is asyncio.get_running_loop() of the rollout"
)

REFUSED_AGAIN_S = 0.05
"""The wait before a rollout is refused once more: its agent may be a loop that passes over every error."""


@dataclass(slots=True)
class RequestTotals:
    """The sum of a rollout's requests. `open` counts those without an answer, even if they wait for a retry.

    `held_for` counts those for whose answers a synchronous client seems to hold the event loop.
    `asked` counts all that the rollout wanted to send, and `tool_calls` what the answers asked for. `bound` is the
    first bound for which a request was refused. `failure` is the error of the last request through the endpoint, None
    if it was answered: its client raised an error of its own. `outage` is the last error of the provider. `usage` is
    None without an answer, and for good once a server answers without its usage: the sum is unknown then.
    """

    usage: Usage | None = None
    answers: int = 0
    retries: int = 0
    finish_reason: str | None = None
    model: str | None = None
    open: int = 0
    held_for: int = 0
    failure: ModelError | BoundError | None = None
    outage: ModelError | None = None
    asked: int = 0
    tool_calls: int = 0
    bound: str | None = None

    def add(self, reply: ChatReply) -> None:
        if not self.answers:
            self.usage = reply.usage
        elif self.usage is not None:
            self.usage = self.usage + reply.usage if reply.usage is not None else None
        self.answers += 1
        self.tool_calls += len(reply.tool_calls)
        self.finish_reason = reply.finish_reason
        self.model = reply.model or self.model

    def count_retry(self) -> None:
        self.retries += 1

    def raise_outage(self) -> None:
        """Raise `ModelError` if the provider let no request be answered: whatever the agent returned is no model's."""
        if self.outage is not None and not self.answers:
            text = f"{self.outage}; the agent returned without an answer of the model"
            raise ModelError(text, status=self.outage.status, systemic=self.outage.systemic)


class ModelGateway:
    """Sends the requests of all rollouts of a host."""

    def __init__(self, setup: Setup, clients: Clients, limits: HostLimits, stalls: StallTime, emit: Emit) -> None:
        self.limits = limits
        self._emit = emit
        self._overload = OverloadDetector()
        self.permits = PermitClient(emit) if setup.permits else None
        self._clients = clients
        self._stalls = stalls
        self.bounds = setup.bounds
        self._timeout_s = setup.target["timeout_s"]
        self._policy = retry.RetryPolicy(max_retries=setup.target["max_retries"])
        self._jitter = random.Random()

    def waits(self, request: ModelRequest, key: Key, on_retry: Callable[[], None]) -> RetryWaits:
        return RetryWaits(request, key, self._overload, self._hold, on_retry, self._emit)

    def _hold(self, wait_s: float) -> None:
        self.limits.hold(wait_s)
        self._emit({"ev": "throttled", "wait_s": wait_s})

    async def send(self, key: Key, request: ChatRequest, deadline: Deadline, waits: RetryWaits) -> ChatReply:
        """Send `request` until it is answered or no retry can help."""
        answered = await retry.chat(
            self._clients[key.run.model],
            request,
            timeout_s=self._timeout_s,
            policy=self._policy,
            remaining_s=deadline.remaining_s,
            waiting=waits.waiting,
            rng=self._jitter,
            on_result=waits.note_result,
            within=lambda seconds: Deadline(seconds, self._stalls, lambda task, times: None),
        )
        return answered.reply


class RolloutChat:
    """The requests of one rollout. `slot` is the rollout's slot, which it releases while it only waits for retries."""

    def __init__(self, gateway: ModelGateway, key: Key, deadline: Deadline) -> None:
        self.key = key
        self.deadline = deadline
        self.slot = RolloutSlot(gateway.limits.slots, gateway.limits.requests, deadline)
        self.totals = RequestTotals()
        self._gateway = gateway
        self._counting = Lock()  # protects `totals`, which the endpoint's standby changes in its own thread

    async def send(self, request: ChatRequest) -> ChatReply:
        if asyncio.get_running_loop() is not self.deadline.loop:
            raise RuntimeError(OTHER_LOOP)
        if self.slot.over:
            raise RuntimeError("ctx.chat was called after its rollout was over")
        return await self._counted(lambda turn: self._send(request, turn))

    async def send_in_standby(self, request: ChatRequest, standby: StandbyGateway) -> ChatReply:
        """Send a request from the standby's thread, while code holds the loop of the rollout."""

        async def sent(_turn: int) -> ChatReply:
            self.totals.held_for += 1
            try:
                return await standby.send(
                    self.key, request, self.deadline.remaining_s, self.deadline.loop, self.totals.count_retry
                )
            finally:
                self.totals.held_for -= self.deadline.remaining_s() > 0

        return await self._counted(sent)

    async def _counted(self, send: Callable[[int], Awaitable[ChatReply]]) -> ChatReply:
        """Return the reply that `send` gets for the next turn, within the bounds, and count it."""
        with self._counting:
            self.totals.asked += 1
            turn = self.totals.asked
        await self._stay_within_bounds(turn)
        with self._counting:
            self.totals.open += 1
        try:
            reply = await send(turn)
        except ModelError as error:
            if error.boundary == "provider":
                self.totals.outage = error
            raise
        finally:
            with self._counting:
                self.totals.open -= self.deadline.remaining_s() > 0  # one that ends with the deadline stays open
        with self._counting:
            self.totals.add(reply)
        return reply

    async def _send(self, request: ChatRequest, turn: int) -> ChatReply:
        async with ModelRequest(self.slot, permit_for(self._gateway.permits, self.key, request)) as in_flight:
            await self._stay_within_bounds(turn)  # others of this rollout were answered meanwhile
            waits = self._gateway.waits(in_flight, self.key, self.totals.count_retry)
            reply = await self._gateway.send(self.key, request, self.deadline, waits)
            in_flight.answered(reply.usage)
        return reply

    async def _stay_within_bounds(self, turn: int) -> None:
        """Raise `BoundError` if a request must not begin. An agent that asks on and on must not hold the event loop."""
        try:
            self._gateway.bounds.check(turn, self.totals, self.key.run.model)
        except (BoundError, ModelError) as error:
            refused_before = self.totals.bound is not None
            if isinstance(error, BoundError):
                self.totals.bound = self.totals.bound or error.bound
            await asyncio.sleep(REFUSED_AGAIN_S if refused_before else 0)
            raise
