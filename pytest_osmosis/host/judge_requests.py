"""The requests to judges while a host scores: within limits of their own, with permits and retries, and counted.

Most are sent on the host's event loop. Code that blocks it, and code in another loop or thread, hands its requests to
`OWN_LOOP`, which has clients and a limit of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from threading import Lock

from pytest_osmosis.errors import ModelError
from pytest_osmosis.formats.events import JudgeFields
from pytest_osmosis.host.chat import Gateway, SentRequest
from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.exchanges import HostExchanges, StoreTotals
from pytest_osmosis.host.protocol import EventSink, Key, Setup
from pytest_osmosis.host.slots import HostLimits, RolloutSlot, StandbySlot
from pytest_osmosis.judges.judge import KEY, JudgeClients, JudgeModel
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, Usage
from pytest_osmosis.models.retry import OWN_LOOP

OVER = "the function that asks its judge has ended already"


@dataclass(slots=True)
class CountedRequests:
    """The sum of the requests to one judge; `uncounted` answers came without their usage, `stored` from a store."""

    model: str
    base_url: str | None
    calls: int = 0
    retries: int = 0
    uncounted: int = 0
    usage: Usage | None = None
    stored: StoreTotals = field(default_factory=StoreTotals)

    def to_json(self) -> JudgeFields:
        fields: JudgeFields = {
            "model": self.model,
            "base_url": self.base_url,
            "calls": self.calls,
            "retries": self.retries,
            "uncounted": self.uncounted,
            "usage": None if self.usage is None else self.usage.to_json(),
        }
        if self.stored.requests:
            fields["stored"] = self.stored.to_json()
        return fields


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

    def count_open(self, change: int) -> None:
        with self._lock:
            self.open += change

    def answered(self, judge: JudgeModel, usage: Usage | None, *, from_store: bool) -> None:
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
            return [totals.to_json() for totals in self._totals.values()]

    def _of(self, judge: JudgeModel) -> CountedRequests:
        of_judge = judge.name, judge.base_url
        return self._totals.setdefault(of_judge, CountedRequests(*of_judge))


class JudgeGateway(Gateway):
    """Sends the requests of all scorings of a host. Keys that user code passes are hidden from its `events`."""

    def __init__(
        self, setup: Setup, limits: HostLimits, stalls: StallTime, events: EventSink, store: HostExchanges | None
    ) -> None:
        super().__init__(setup, stalls, events, store, partial(limits.hold, held="judges"), of_judges=True)
        self.clients = JudgeClients()
        self.standby_clients = JudgeClients()
        self._hidden: set[str] = set()

    def hide_key(self, judge: JudgeModel) -> None:
        """Let no event hold the key that a function passes."""
        if judge.api_key is not None and judge.api_key not in self._hidden:
            self._hidden.add(judge.api_key)
            self.events.hide(KEY, judge.api_key)

    async def close(self) -> None:
        await self.clients.close()
        if self.standby_clients.any_made:
            await OWN_LOOP.wait_for(self.standby_clients.close())


class ScoringRequests:
    """The requests to judges of one call of a function (`judges.judge.Requests`).

    `slot` is the place of the scoring, which it releases while it only waits for retries.
    """

    def __init__(self, gateway: JudgeGateway, key: Key, name: str, slot: RolloutSlot, deadline: Deadline) -> None:
        self.counts = JudgeCounts()
        self._gateway = gateway
        self._key = key
        self._slot = slot
        self._deadline = deadline
        self._over = False
        self._exchanges = gateway.exchanges(key, name)

    @property
    def needs_keys(self) -> bool:
        """False in a replay, which asks no judge."""
        return self._gateway.store is None or not self._gateway.store.is_replay

    def end(self) -> None:
        self._over = True

    async def send(self, judge: JudgeModel, request: ChatRequest, client: Model | None = None) -> ChatReply:
        """Return the reply, after retries, or from the store. The judge of the config has a `client` already."""
        gateway, deadline = self._gateway, self._deadline
        slot: RolloutSlot | StandbySlot = self._slot
        sender, clients, paused = gateway.here, gateway.clients, deadline.paused
        if asyncio.get_running_loop() is not deadline.loop:
            if not OWN_LOOP.is_here:
                return await OWN_LOOP.wait_for(self.send(judge, request))
            sender, clients, paused = gateway.standby, gateway.standby_clients, deadline.paused_blocked
            slot = StandbySlot(gateway.standby_requests, deadline)
        if self._over:
            raise RuntimeError(OVER)
        gateway.hide_key(judge)
        exchanges = self._exchanges
        asked = None if exchanges is None else exchanges.asks(request, judge.target.model, judge.target.api)

        async def answered() -> ChatReply:
            is_sent = asked is None or asked.is_sent
            model = client or await clients.client(judge, paused) if is_sent else None
            self.counts.count_open(1)
            try:
                on_retry = partial(self.counts.retried, judge)
                async with SentRequest(sender, slot, self._key, request, on_retry, sent=is_sent) as sent:
                    if model is not None:
                        reply = await sent.reply(model, judge.target.timeout_s, deadline)
                    elif asked is not None:
                        reply = await asked.answer()
            except ModelError as error:
                self.counts.late = self.counts.late or deadline.remaining_s() <= 0
                if not is_sent and error.boundary == "provider":
                    self.counts.unrecorded = error
                raise
            finally:
                if not deadline.expired:
                    self.counts.count_open(-1)
            self.counts.answered(judge, reply.usage, from_store=asked is not None and asked.from_store)
            return reply

        return await (answered() if asked is None else asked.exchanged(answered, sender.report))
