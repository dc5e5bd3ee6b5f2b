"""The sender of requests to models: within limits, with permits and retries. If a server refuses most requests, all
requests to it wait."""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.deadline import Deadline, StallTime, brief_deadlines
from pytest_osmosis.host.exchanges import AskerExchanges, HostExchanges, report_at_once
from pytest_osmosis.host.permits import PermitClient, permit_for
from pytest_osmosis.host.protocol import Emit, EventSink, Key, Setup
from pytest_osmosis.host.slots import ModelRequest, ResizableSemaphore, RolloutSlot, StandbySlot
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model

REFUSALS = frozenset({429, 498, 503, 529})
"""The statuses by which servers say that they have no room; 498 is Groq's."""
WINDOW = 8
OVERLOADED = 4
"""This many refusals among the last WINDOW answers mean that the server has no room at all. Every busy service refuses
a request now and then; that costs this request a retry and slows down no other."""


class OverloadDetector:
    """Remembers which of a server's last answers were refusals."""

    def __init__(self) -> None:
        self._refusals: deque[bool] = deque(maxlen=WINDOW)

    def overloaded(self, error: ModelError | None) -> bool:
        """Count an answer (`error` is None for a good one). Return True for the refusal that makes it an overload."""
        refused = error is not None and error.status in REFUSALS
        self._refusals.append(refused)
        if not refused or sum(self._refusals) < OVERLOADED:
            return False
        self._refusals.clear()
        return True


class Sender:
    """Sends requests in one event loop, `within` their timeouts, and each with one of the `permits` if there are any.

    `hold` makes all requests to an overloaded server wait. The engine hears by `emit` of waits for retries, and by
    `report` of exchanges.
    """

    def __init__(
        self,
        permits: PermitClient | None,
        max_retries: int,
        within: retry.Within,
        report: Emit,
        hold: Callable[[float], None] = lambda wait_s: None,
        emit: Emit = lambda event: None,
    ) -> None:
        self.permits = permits
        self.policy = retry.RetryPolicy(max_retries=max_retries)
        self.within = within
        self.report = report
        self.hold = hold
        self.emit = emit
        self.overload = OverloadDetector()
        self.jitter = random.Random()


class SentRequest(ModelRequest):
    """A request of a rollout by a sender, entered once it may be sent, or answered from a store if it is not `sent`.

    `on_retry` is called for each retry.
    """

    def __init__(
        self,
        sender: Sender,
        slot: RolloutSlot | StandbySlot,
        key: Key,
        request: ChatRequest,
        on_retry: Callable[[], None],
        *,
        sent: bool,
    ) -> None:
        super().__init__(slot, permit_for(sender.permits, key, request) if sent else None)
        self._sender = sender
        self._key = key
        self._request = request
        self._on_retry = on_retry
        self._overloaded = False

    async def reply(self, model: Model, timeout_s: float, deadline: Deadline) -> ChatReply:
        """Send it until it is answered or no retry can help."""
        sender = self._sender
        answered = await retry.chat(
            model,
            self._request,
            timeout_s=timeout_s,
            policy=sender.policy,
            remaining_s=deadline.remaining_s,
            waiting=self._waiting,
            rng=sender.jitter,
            on_result=self._note_result,
            within=self._within,
            moved=self._moved,
        )
        self.answered(answered.reply.usage)
        return answered.reply

    def _within(self, seconds: float) -> AbstractAsyncContextManager[object]:
        """Return the context in which the request is sent: none is entered for one that is refused before."""
        self.was_sent = True
        return self._sender.within(seconds)

    def _note_result(self, error: ModelError | None) -> None:
        self._overloaded = self._sender.overload.overloaded(error)

    @asynccontextmanager
    async def _waiting(self, delay_s: float) -> AsyncIterator[None]:
        """A context for a wait of `delay_s`, left once the request may be sent again."""
        if self._overloaded:
            self._sender.hold(delay_s)
        self._tell(waits=True)
        try:
            async with self.waiting_for_retry():
                yield
        finally:
            self._tell(waits=False)
        self._on_retry()

    async def _moved(self) -> None:
        """Wait until the request may be sent to another replica."""
        await self.send_again()
        self._on_retry()

    def _tell(self, *, waits: bool) -> None:
        self._sender.emit({"ev": "retry", **self._key.to_json(), "waits": waits})


class Gateway:
    """Sends requests of a host in its event loop (`here`), and in `OWN_LOOP` for code that holds that (`standby`).

    `hold` makes the requests of its loop wait for a server without room. `store` may hold answers.
    """

    def __init__(
        self,
        setup: Setup,
        stalls: StallTime,
        events: EventSink,
        store: HostExchanges | None,
        hold: Callable[[float], None],
        *,
        of_judges: bool = False,
    ) -> None:
        def permits(emit: Emit) -> PermitClient | None:
            return PermitClient(emit, of_judges) if are_needed else None

        are_needed = setup.judge_permits if of_judges else setup.permits
        retries: int = setup.judge_retries if of_judges else setup.code.target["max_retries"]
        within, report = brief_deadlines(stalls), report_at_once(events)
        self.events = events
        self.store = store
        self.here = Sender(permits(events.emit), retries, within, report, hold, events.emit)
        of_threads = events.emit_from_thread
        self.standby = Sender(permits(of_threads), retries, asyncio.timeout, of_threads)
        self.standby_requests = ResizableSemaphore(setup.limit)

    def exchanges(self, key: Key, name: str) -> AskerExchanges | None:
        """Return the exchanges of a rollout or a call of a function, None if they are neither kept nor looked up."""
        return None if self.store is None else AskerExchanges(self.store, key, name, self.events.redacted)
