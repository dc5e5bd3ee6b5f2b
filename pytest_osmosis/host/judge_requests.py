"""The requests to judges while a host scores: within limits of their own, with permits and retries, and counted.

Most are sent on the host's event loop. Code that blocks it, and code with a loop of its own, is served by a loop in a
thread (`judges.own_loop`), with clients and limits of its own: it asks for one judgement at a time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.clients import Clients
from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.exchanges import AskedModel, AskedRequest, HostExchanges, StoreTotals, report_at_once
from pytest_osmosis.host.limits import HostLimits
from pytest_osmosis.host.permits import PermitClient, permit_for
from pytest_osmosis.host.protocol import JUDGE, EventSink, Key, Setup
from pytest_osmosis.host.retry_waits import OverloadDetector, RetryWaits
from pytest_osmosis.host.slots import ModelRequest, ResizableSemaphore, RolloutSlot, unlimited_slot
from pytest_osmosis.judges.own_loop import OWN_LOOP
from pytest_osmosis.judges.requests import KEY, JudgeClients, JudgeModel, PausableClock
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, Usage
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
        self.policy = retry.RetryPolicy(max_retries=setup.judge_retries)
        self.jitter = random.Random()
        self._configured = clients.get(JUDGE)
        self._hidden: set[str] = set()
        permits = setup.judge_permits
        self.here = Lane(
            limits.judge_requests,
            PermitClient(events.emit, of_judges=True) if permits else None,
            limits.hold_judges,
            lambda seconds: Deadline(seconds, stalls, lambda task, times: None),
        )
        self.in_thread = Lane(
            ResizableSemaphore(setup.limit),
            PermitClient(events.emit_from_thread, of_judges=True) if permits else None,
            lambda wait_s: None,
            asyncio.timeout,
        )

    def grant(self, numbers: Sequence[int]) -> None:
        """Let requests be sent from the host's loop."""
        if self.here.permits is not None:
            self.here.permits.grant(numbers)

    def grant_in_thread(self, numbers: Sequence[int]) -> None:
        """Let requests be sent from the thread. May be called from any thread, whatever the host's loop does."""
        if self.in_thread.permits is not None:
            OWN_LOOP.soon(self.in_thread.permits.grant, numbers)

    @property
    def configured(self) -> Model:
        """The client of the config's judge."""
        assert self._configured is not None, "only a config with a rubric has a judge"
        return self._configured

    async def client(self, judge: JudgeModel, lane: Lane, clock: PausableClock) -> Model:
        """Return the client of the judge that a function names."""
        return await lane.clients.client(judge, clock)

    def hide_key(self, judge: JudgeModel) -> None:
        """Let no event hold the key that a function passes."""
        if judge.api_key is not None and judge.api_key not in self._hidden:
            self._hidden.add(judge.api_key)
            self.events.hide(KEY, judge.api_key)

    async def close(self) -> None:
        """Close the clients that functions needed."""
        await self.here.clients.close()
        if self.in_thread.is_used:
            await OWN_LOOP.wait_for(self.in_thread.clients.close())


@dataclass(slots=True)
class Lane:
    """One of the event loops that send requests to judges, with all that belongs to it."""

    requests: ResizableSemaphore
    permits: PermitClient | None
    hold: Callable[[float], None]
    within: Callable[[float], AbstractAsyncContextManager[object]]
    clients: JudgeClients = field(default_factory=JudgeClients)
    overload: OverloadDetector = field(default_factory=OverloadDetector)
    is_used: bool = False


class ScoringClock:
    """The clock of the function that scores now: it is paused while a request of it waits because of others."""

    def __init__(self) -> None:
        self.deadline: Deadline | None = None

    def pause(self) -> None:
        if self.deadline is not None:
            self.deadline.pause()

    def resume(self) -> None:
        if self.deadline is not None:
            self.deadline.resume()


class BlockedClock:
    """The clock of a function that blocks the host's loop, used from another thread.

    All the time for which the loop is blocked is charged to the function, so that of a pause is given back.
    """

    def __init__(self, deadline: Deadline) -> None:
        self._deadline = deadline
        self._is_paused = False

    def pause(self) -> None:
        if not self._is_paused:
            self._is_paused = True
            self._deadline.pause_blocked()

    def resume(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self._deadline.resume_blocked()


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
        self._slot_in_thread: RolloutSlot | None = None
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
        gateway = self._gateway
        if asyncio.get_running_loop() is gateway.loop:
            client = partial(gateway.client, judge, gateway.here, self._deadline)
            return await self._send(judge, client, request, gateway.here, self._slot)
        if not OWN_LOOP.is_here:
            return await OWN_LOOP.wait_for(self.send(judge, request))
        lane = gateway.in_thread
        if self._slot_in_thread is None:
            lane.is_used = True
            self._slot_in_thread = unlimited_slot(lane.requests, BlockedClock(self._deadline))
        client = partial(gateway.client, judge, lane, BlockedClock(self._deadline))
        return await self._send(judge, client, request, lane, self._slot_in_thread)

    async def send_to_configured(self, judge: JudgeModel, request: ChatRequest) -> ChatReply:
        """Send a request to the judge of the config, whose client knows if it denies every request."""
        gateway = self._gateway

        async def client() -> Model:
            return gateway.configured

        return await self._send(judge, client, request, gateway.here, self._slot)

    async def _send(
        self, judge: JudgeModel, get_client: GetClient, request: ChatRequest, lane: Lane, slot: RolloutSlot
    ) -> ChatReply:
        if self._over:
            raise RuntimeError(OVER)
        self._gateway.hide_key(judge)
        if self._exchanges is None:
            return await self._answered(judge, get_client, request, lane, slot, None)
        events = self._gateway.events
        asked = self._exchanges.asks(request, AskedModel.of(judge.target.to_json()))
        send = partial(self._answered, judge, get_client, request, lane, slot, asked)
        emit = report_at_once(events) if lane is self._gateway.here else events.emit_from_thread
        return await asked.exchanged(send, emit)

    async def _answered(
        self,
        judge: JudgeModel,
        get_client: GetClient,
        request: ChatRequest,
        lane: Lane,
        slot: RolloutSlot,
        asked: AskedRequest | None,
    ) -> ChatReply:
        """Return the reply, after retries, or from the store."""
        deadline = self._deadline
        client = await get_client() if asked is None or asked.is_sent else None
        self.counts.begin()
        try:
            get_permit = None if client is None else permit_for(lane.permits, self._key, request)
            async with ModelRequest(slot, get_permit) as in_flight:
                if client is not None:
                    reply = await self._sent(judge, client, request, lane, in_flight)
                    in_flight.answered(reply.usage)
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

    async def _sent(
        self, judge: JudgeModel, client: Model, request: ChatRequest, lane: Lane, in_flight: ModelRequest
    ) -> ChatReply:
        gateway = self._gateway
        emit = gateway.events.emit if lane is gateway.here else None  # nothing is heard of a function that blocks
        waits = RetryWaits(in_flight, self._key, lane.overload, lane.hold, partial(self.counts.retried, judge), emit)
        answered = await retry.chat(
            client,
            request,
            timeout_s=judge.target.timeout_s,
            policy=gateway.policy,
            remaining_s=self._deadline.remaining_s,
            waiting=waits.waiting,
            rng=gateway.jitter,
            on_result=waits.note_result,
            within=lane.within,
            moved=waits.moved,
        )
        return answered.reply
