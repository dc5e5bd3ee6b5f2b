"""The requests to judges while a host scores: within limits of their own, with permits and retries, and counted.

Most are sent on the host's event loop. Code that blocks it, and code in another loop or thread, hands its requests to
`OWN_LOOP`, which has clients and a limit of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock
from typing import NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.clients import Clients
from pytest_osmosis.host.deadline import Deadline, StallTime, brief_deadlines
from pytest_osmosis.host.exchanges import AskedModel, AskedRequest, HostExchanges, StoreTotals, report_at_once
from pytest_osmosis.host.limits import HostLimits
from pytest_osmosis.host.permits import PermitClient
from pytest_osmosis.host.protocol import JUDGE, Emit, EventSink, Key, Setup
from pytest_osmosis.host.sender import Sender
from pytest_osmosis.host.slots import ResizableSemaphore, RolloutSlot, StandbySlot
from pytest_osmosis.judges.requests import KEY, JudgeClients, JudgeModel
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, Usage
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.record.events import JudgeFields

GetClient = Callable[[], Awaitable[Model]]
OVER = "the function that asks its judge has ended already"


@dataclass(slots=True)
class CountedRequests:
    """The sum of the requests to one judge; `uncounted` answers came without their usage, `stored` from a store."""

    calls: int = 0
    retries: int = 0
    uncounted: int = 0
    usage: Usage | None = None
    stored: StoreTotals = field(default_factory=StoreTotals)


class JudgeCounts:
    """The requests to judges of one call of a function, counted in whichever thread they end.

    `open` counts those without an answer; `late` is True once one ended because no time was left. `unrecorded` is the
    last one of a replay that has no recorded answer.
    """

    def __init__(self) -> None:
        self.open = 0
        self.late = False
        self.unrecorded: ModelError | None = None
        self._totals: dict[tuple[str, str | None], CountedRequests] = {}
        self._lock = Lock()

    def begin(self) -> None:
        with self._lock:
            self.open += 1

    def end(self) -> None:
        with self._lock:
            self.open -= 1

    def raise_unrecorded(self) -> None:
        """Raise `ModelError` if a replay had no answer for a judge: whatever the function made of it is no score."""
        if self.unrecorded is not None:
            raise self.unrecorded

    def answered(self, judge: JudgeModel, usage: Usage | None, *, from_store: bool = False) -> None:
        with self._lock:
            totals = self._of(judge)
            totals.calls += 1
            if from_store:
                totals.stored.add(usage)
            if usage is None:
                totals.uncounted += 1
            else:
                totals.usage = usage if totals.usage is None else totals.usage + usage

    def retried(self, judge: JudgeModel) -> None:
        with self._lock:
            self._of(judge).retries += 1

    def to_json(self) -> Sequence[JudgeFields]:
        with self._lock:
            return [_judge_fields(*judge, totals) for judge, totals in self._totals.items()]

    def _of(self, judge: JudgeModel) -> CountedRequests:
        return self._totals.setdefault((judge.name, judge.base_url), CountedRequests())


def _judge_fields(model: str, base_url: str | None, totals: CountedRequests) -> JudgeFields:
    fields: JudgeFields = {
        "model": model,
        "base_url": base_url,
        "calls": totals.calls,
        "retries": totals.retries,
        "uncounted": totals.uncounted,
        "usage": None if totals.usage is None else totals.usage.to_json(),
    }
    if totals.stored.requests:
        fields["stored"] = totals.stored.to_json()
    return fields


class JudgeGateway:
    """Sends the requests of all scorings of a host. Keys that user code passes are hidden from its `events`."""

    def __init__(
        self,
        setup: Setup,
        clients: Clients,
        limits: HostLimits,
        stalls: StallTime,
        events: EventSink,
        store: HostExchanges | None = None,
    ) -> None:
        self.events = events
        self.store = store
        self.loop = asyncio.get_running_loop()
        permits = PermitClient(events.emit_from_thread, of_judges=True) if setup.judge_permits else None
        within = brief_deadlines(stalls)
        sender = Sender(permits, setup.judge_retries, within, limits.hold_judges, events.emit)
        self.here = Lane(sender, report_at_once(events), JudgeClients())
        sender = Sender(permits, setup.judge_retries, asyncio.timeout)
        self.standby = Lane(sender, events.emit_from_thread, JudgeClients())
        self.standby_requests = ResizableSemaphore(setup.limit)
        self._configured = clients.get(JUDGE)
        self._hidden: set[str] = set()

    @property
    def configured(self) -> Model:
        """The client of the config's judge."""
        assert self._configured is not None, "only a config with a rubric has a judge"
        return self._configured

    def hide_key(self, judge: JudgeModel) -> None:
        """Let no event hold the key that a function passes."""
        if judge.api_key is not None and judge.api_key not in self._hidden:
            self._hidden.add(judge.api_key)
            self.events.hide(KEY, judge.api_key)

    async def close(self) -> None:
        """Close the clients that functions needed."""
        await self.here.clients.close()
        if self.standby.clients.any_made:
            await OWN_LOOP.wait_for(self.standby.clients.close())


class Lane(NamedTuple):
    """One of the event loops that send requests to judges. Exchanges are told by `report`."""

    sender: Sender
    report: Emit
    clients: JudgeClients


class ScoringRequests:
    """The requests to judges of one call of a function (`judges.requests.Requests`).

    `slot` is the place of the scoring, which it releases while it only waits for retries.
    """

    def __init__(self, gateway: JudgeGateway, key: Key, name: str, slot: RolloutSlot, deadline: Deadline) -> None:
        self.counts = JudgeCounts()
        self._gateway = gateway
        self._key = key
        self._slot = slot
        self._deadline = deadline
        self._over = False
        store = gateway.store
        self._exchanges = None if store is None else store.of(key, name, gateway.events.redacted)

    @property
    def needs_keys(self) -> bool:
        """False in a replay, which asks no judge."""
        return self._gateway.store is None or not self._gateway.store.is_replay

    def end(self) -> None:
        """Refuse further requests."""
        self._over = True

    async def send(self, judge: JudgeModel, request: ChatRequest) -> ChatReply:
        gateway, deadline = self._gateway, self._deadline
        if asyncio.get_running_loop() is gateway.loop:
            get_client = partial(gateway.here.clients.client, judge, deadline.paused)
            return await self._send(judge, request, get_client, gateway.here, self._slot)
        if not OWN_LOOP.is_here:
            return await OWN_LOOP.wait_for(self.send(judge, request))
        get_client = partial(gateway.standby.clients.client, judge, deadline.paused_blocked)
        slot = StandbySlot(gateway.standby_requests, deadline)
        return await self._send(judge, request, get_client, gateway.standby, slot)

    async def send_to_configured(self, judge: JudgeModel, request: ChatRequest) -> ChatReply:
        """Send a request to the judge of the config, whose client knows if it denies every request."""

        async def client() -> Model:
            return self._gateway.configured

        return await self._send(judge, request, client, self._gateway.here, self._slot)

    async def _send(
        self,
        judge: JudgeModel,
        request: ChatRequest,
        get_client: GetClient,
        lane: Lane,
        slot: RolloutSlot | StandbySlot,
    ) -> ChatReply:
        if self._over:
            raise RuntimeError(OVER)
        self._gateway.hide_key(judge)
        send = partial(self._answered, judge, request, get_client, lane, slot)
        if self._exchanges is None:
            return await send(None)
        asked = self._exchanges.asks(request, AskedModel.of(judge.target.to_json()))
        return await asked.exchanged(partial(send, asked), lane.report)

    async def _answered(
        self,
        judge: JudgeModel,
        request: ChatRequest,
        get_client: GetClient,
        lane: Lane,
        slot: RolloutSlot | StandbySlot,
        asked: AskedRequest | None,
    ) -> ChatReply:
        """Return the reply, after retries, or from the store."""
        deadline, sender = self._deadline, lane.sender
        client = await get_client() if asked is None or asked.is_sent else None
        self.counts.begin()
        try:
            async with sender.begun(slot, self._key, request, is_sent=client is not None) as in_flight:
                if client is not None:
                    on_retry, timeout_s = partial(self.counts.retried, judge), judge.target.timeout_s
                    reply = await sender.send(client, request, in_flight, self._key, timeout_s, deadline, on_retry)
                elif asked is not None:
                    reply = await asked.answer()
        except ModelError as error:
            self.counts.late = self.counts.late or deadline.remaining_s() <= 0
            if client is None and error.boundary == "provider":
                self.counts.unrecorded = error
            lane.clients.note(judge, error)
            raise
        finally:
            if not deadline.expired:
                self.counts.end()
        self.counts.answered(judge, reply.usage, from_store=asked is not None and asked.from_store)
        return reply
