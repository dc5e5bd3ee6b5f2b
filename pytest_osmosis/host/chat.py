"""The model requests of rollouts: within the host's limits, with permits and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from pytest_osmosis.cassettes.exchange import ROLLOUT
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.host.clients import Clients
from pytest_osmosis.host.deadline import Deadline, StallTime, brief_deadlines
from pytest_osmosis.host.exchanges import (
    AskedModel,
    AskedRequest,
    AskerExchanges,
    HostExchanges,
    StoreTotals,
    report_at_once,
)
from pytest_osmosis.host.limits import HostLimits
from pytest_osmosis.host.permits import PermitClient
from pytest_osmosis.host.protocol import Emit, EventSink, Key, Setup
from pytest_osmosis.host.sender import Sender
from pytest_osmosis.host.slots import RolloutSlot
from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.headers import state_headers
from pytest_osmosis.models.replicas import USES, ReplicaUse
from pytest_osmosis.record.run_id import ModelTag
from pytest_osmosis.text.header_names import merged_headers

if TYPE_CHECKING:
    from pytest_osmosis.host.standby_gateway import StandbyGateway

OTHER_LOOP = (
    "ctx.chat must be awaited in its rollout's event loop; from a thread: asyncio.run_coroutine_threadsafe("
    "ctx.chat(...), loop).result(), where loop is asyncio.get_running_loop() of the rollout"
)

SendTurn = Callable[[int, AskedRequest | None], Awaitable[ChatReply]]
"""Sends the request that is a turn of its rollout."""

REFUSED_AGAIN_S = 0.05
"""The wait before a rollout is refused once more: its agent may be a loop that passes over every error."""


@dataclass(slots=True)
class RequestTotals:
    """The sum of a rollout's requests. `open` counts those without an answer, even if they wait for a retry.

    `finish_reason` and `model` are those of the answer to `last`, the last turn that has one.
    `held_for` counts those for whose answers a synchronous client seems to hold the event loop.
    `asked` counts all that the rollout wanted to send, and `tool_calls` what the answers asked for. `bound` is the
    first bound for which a request was refused. `failure` is the error of the last request through the endpoint, None
    if it was answered: its client raised an error of its own. `outage` is the last error of the provider. `usage` is
    None without an answer, and for good once a server answers without its usage: the sum is unknown then. `stored`
    are those of the answers that came from a store, `unrecorded` is the last request of a replay that it did not hold.
    `replicas` are the requests to each replica of the model, by its name.
    """

    usage: Usage | None = None
    answers: int = 0
    retries: int = 0
    last: int = 0
    finish_reason: str | None = None
    model: str | None = None
    open: int = 0
    held_for: int = 0
    failure: ModelError | BoundError | None = None
    outage: ModelError | None = None
    asked: int = 0
    tool_calls: int = 0
    bound: str | None = None
    stored: StoreTotals = field(default_factory=StoreTotals)
    replicas: dict[str, ReplicaUse] = field(default_factory=dict)
    unrecorded: ModelError | None = None

    def add(self, reply: ChatReply, turn: int) -> None:
        if not self.answers:
            self.usage = reply.usage
        elif self.usage is not None:
            self.usage = self.usage + reply.usage if reply.usage is not None else None
        self.answers += 1
        self.tool_calls += len(reply.tool_calls)
        if turn >= self.last:  # of requests that were sent together, the first may be answered last
            self.last = turn
            self.finish_reason = reply.finish_reason
            self.model = reply.model or self.model

    def count_retry(self) -> None:
        self.retries += 1

    def raise_outage(self) -> None:
        """Raise `ModelError` if the provider let no request be answered: whatever the agent returned is no model's.

        In a replay one request without an answer is enough.
        """
        if self.unrecorded is not None:
            raise self.unrecorded
        if self.outage is not None and not self.answers:
            text = f"{self.outage}; the agent returned without an answer of the model"
            outage = self.outage
            raise ModelError(text, status=outage.status, systemic=outage.systemic, details=outage.details)


class ModelGateway:
    """Sends the requests of all rollouts of a host."""

    def __init__(
        self,
        setup: Setup,
        clients: Clients,
        limits: HostLimits,
        stalls: StallTime,
        events: EventSink,
        store: HostExchanges | None = None,
    ) -> None:
        self.limits = limits
        self.events = events
        self.sender = Sender(
            PermitClient(events.emit) if setup.permits else None,
            setup.target["max_retries"],
            brief_deadlines(stalls),
            self._hold,
            events.emit,
        )
        self._store = store
        self._models = {tag: AskedModel.of(target) for tag, target in setup.targets.items()}
        self._state_headers: Mapping[ModelTag, Mapping[str, str]] = {
            tag: target.get("headers_from_state", {}) for tag, target in setup.targets.items()
        }
        self.clients = clients
        self.bounds = setup.bounds
        self.timeout_s = setup.target["timeout_s"]

    def _hold(self, wait_s: float) -> None:
        self.limits.hold(wait_s)
        self.events.emit({"ev": "throttled", "wait_s": wait_s})

    def state_headers(self, tag: ModelTag) -> Mapping[str, str]:
        """Return the headers from the state of a rollout, and their keys in it."""
        return self._state_headers[tag]

    def exchanges(self, key: Key) -> RolloutExchanges | None:
        """Return the exchanges of a rollout, None if they are neither kept nor looked up."""
        if self._store is None:
            return None
        return RolloutExchanges(self._store.of(key, ROLLOUT, self.events.redacted), self._models[key.run.model])


class RolloutExchanges(NamedTuple):
    """The exchanges of a rollout, all with the same model."""

    exchanges: AskerExchanges
    model: AskedModel

    def asks(self, request: ChatRequest) -> AskedRequest:
        return self.exchanges.asks(request, self.model)


class RolloutChat:
    """The requests of one rollout. `slot` is the rollout's slot, which it releases while it only waits for retries.

    `state` holds what headers may take from the state of any rollout.
    """

    def __init__(self, gateway: ModelGateway, key: Key, deadline: Deadline) -> None:
        self.key = key
        self.state: dict[str, Any] = {
            "row_index": key.run.row,
            "run_index": key.run.index,
            "example_id": key.run.row,
            "trajectory_id": uuid4().hex,
        }
        self.deadline = deadline
        self.slot = RolloutSlot(gateway.limits.slots, gateway.limits.requests, deadline)
        self.totals = RequestTotals()
        self._gateway = gateway
        self._exchanges = gateway.exchanges(key)
        self._items: dict[str, Any] = {}
        """The items of answers that only OpenAI's Responses can represent, by the id of their first tool call."""
        self._reasoned: list[Message] = []
        """The messages of the last request whose answer holds reasoning that has to go back."""
        self._counting = Lock()  # protects `totals`, which the endpoint's standby changes in its own thread

    async def send(self, request: ChatRequest) -> ChatReply:
        if asyncio.get_running_loop() is not self.deadline.loop:
            raise RuntimeError(OTHER_LOOP)
        if self.slot.over:
            raise RuntimeError("ctx.chat was called after its rollout was over")
        request = self._with_items(self._with_headers(request))
        return await self._counted(request, partial(self._send, request), report_at_once(self._gateway.events))

    async def send_in_standby(self, request: ChatRequest, standby: StandbyGateway) -> ChatReply:
        """Send a request from the standby's thread, while code holds the loop of the rollout."""
        request = self._with_items(self._with_headers(request))

        async def sent(_turn: int, asked: AskedRequest | None) -> ChatReply:
            self.totals.held_for += 1
            try:
                if asked is not None and not asked.is_sent:
                    return await asked.answer()
                return await standby.send(self.key, request, self.deadline, self.totals.count_retry)
            finally:
                self.totals.held_for -= self.deadline.remaining_s() > 0

        return await self._counted(request, sent, self._gateway.events.emit_from_thread)

    async def _counted(self, request: ChatRequest, send: SendTurn, emit: Emit) -> ChatReply:
        """Return the reply that `send` gets for the next turn, within the bounds, and count it."""
        with self._counting:
            self.totals.asked += 1
            turn = self.totals.asked
        await self._stay_within_bounds(turn)
        if self._reasoned and self._forgets(request):
            emit({"ev": "reasoning_lost"})
        with self._counting:
            self.totals.open += 1
        asked: AskedRequest | None = None
        counting = USES.set(self.totals.replicas)
        try:
            if self._exchanges is None:
                reply = await send(turn, None)
            else:
                asked = self._exchanges.asks(request)
                reply = await asked.exchanged(partial(send, turn, asked), emit)
        except ModelError as error:
            if error.boundary == "provider":
                self.totals.outage = error
                if asked is not None and not (asked.is_sent or asked.from_store):
                    self.totals.unrecorded = error
            raise
        finally:
            USES.reset(counting)
            with self._counting:
                self.totals.open -= self.deadline.remaining_s() > 0  # one that ends with the deadline stays open
        with self._counting:
            self.totals.add(reply, turn)
            if ITEMS in reply.message:
                self._reasoned = list(request.messages) if _holds_reasoning(reply.message[ITEMS]) else self._reasoned
                if reply.tool_calls:
                    self._items[reply.tool_calls[0]["id"]] = reply.message[ITEMS]
            if asked is not None and asked.from_store:
                self.totals.stored.add(reply.usage)
        return reply

    def _with_items(self, request: ChatRequest) -> ChatRequest:
        """Return a request whose messages have the items of the answers that they repeat: most clients drop them."""
        if not self._items or request.native is not None:
            return request
        return replace(request, messages=[self._with_own_items(message) for message in request.messages])

    def _with_own_items(self, message: Message) -> Message:
        calls = message.get("tool_calls") if isinstance(message, dict) and ITEMS not in message else None
        first = calls[0].get("id") if isinstance(calls, list) and calls and isinstance(calls[0], dict) else None
        items = self._items.get(first) if isinstance(first, str) else None
        return message if items is None else {**message, ITEMS: items}

    def _forgets(self, request: ChatRequest) -> bool:
        """Return True if a request goes on after the last answer that holds reasoning, but not with it."""
        n = len(self._reasoned)
        follows = list(request.messages[n:])
        if not follows or list(request.messages[:n]) != self._reasoned:
            return False
        if request.native is not None:
            return not _holds_reasoning(request.native.get("input"))
        return not any(isinstance(each, dict) and _holds_reasoning(each.get(ITEMS)) for each in follows)

    def _with_headers(self, request: ChatRequest) -> ChatRequest:
        """Return a request with the headers whose values are in the state of every rollout; its own ones stay."""
        wanted = self._gateway.state_headers(self.key.run.model)
        headers = state_headers(wanted, self.state)
        return replace(request, headers=merged_headers(headers, request.headers)) if headers else request

    async def _send(self, request: ChatRequest, turn: int, asked: AskedRequest | None) -> ChatReply:
        """Send a request once it may be sent. One that is answered from a store waits too, but for no permit."""
        gateway, is_sent = self._gateway, asked is None or asked.is_sent
        async with gateway.sender.begun(self.slot, self.key, request, is_sent=is_sent) as in_flight:
            await self._stay_within_bounds(turn)  # others of this rollout were answered meanwhile
            if asked is not None and not is_sent:
                return await asked.answer()
            model, on_retry = gateway.clients[self.key.run.model], self.totals.count_retry
            return await gateway.sender.send(
                model, request, in_flight, self.key, gateway.timeout_s, self.deadline, on_retry
            )

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


def _holds_reasoning(items: object) -> bool:
    """Return True for items of Responses of which one is reasoning that can go back."""
    return isinstance(items, list) and any(isinstance(item, dict) and item.get("encrypted_content") for item in items)
