"""The sender of requests to models: within limits, with permits and retries. If a server refuses most requests, all
requests to it wait."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.deadline import Deadline
from pytest_osmosis.host.permits import PermitClient, permit_for
from pytest_osmosis.host.protocol import Emit, Key
from pytest_osmosis.host.slots import ModelRequest, RolloutSlot, StandbySlot
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


class RetryWaits:
    """The waits of one request. `hold` makes all requests to an overloaded server wait; `on_retry` counts a retry.

    The engine hears of each wait by `emit`.
    """

    def __init__(
        self,
        request: ModelRequest,
        key: Key,
        overload: OverloadDetector,
        hold: Callable[[float], None],
        on_retry: Callable[[], None],
        emit: Emit,
    ) -> None:
        self._request = request
        self._key = key
        self._overload = overload
        self._hold = hold
        self._on_retry = on_retry
        self._emit = emit
        self._overloaded = False

    def note_result(self, error: ModelError | None) -> None:
        """Note the result of the last try: its error, or None for a reply."""
        self._overloaded = self._overload.overloaded(error)

    @asynccontextmanager
    async def waiting(self, delay_s: float) -> AsyncIterator[None]:
        """A context for a wait of `delay_s`, left once the request may be sent again."""
        if self._overloaded:
            self._hold(delay_s)
        self._tell(waits=True)
        try:
            async with self._request.waiting_for_retry():
                yield
        finally:
            self._tell(waits=False)
        self._on_retry()

    async def moved(self) -> None:
        """Wait until the request may be sent to another replica."""
        await self._request.send_again()
        self._on_retry()

    def _tell(self, *, waits: bool) -> None:
        self._emit({"ev": "retry", **self._key.to_json(), "waits": waits})


class Sender:
    """Sends requests in one event loop, `within` their timeouts, and each with one of the `permits` if there are any.

    `hold` makes all requests to an overloaded server wait. The engine hears by `emit` of waits for retries.
    """

    def __init__(
        self,
        permits: PermitClient | None,
        max_retries: int,
        within: retry.Within,
        hold: Callable[[float], None] = lambda wait_s: None,
        emit: Emit = lambda event: None,
    ) -> None:
        self._permits = permits
        self._policy = retry.RetryPolicy(max_retries=max_retries)
        self._within = within
        self._hold = hold
        self._emit = emit
        self._overload = OverloadDetector()
        self._jitter = random.Random()

    def begun(self, slot: RolloutSlot | StandbySlot, key: Key, request: ChatRequest, *, is_sent: bool) -> ModelRequest:
        """Return a context that is entered once `request` may be sent, or answered from a store."""
        return ModelRequest(slot, permit_for(self._permits, key, request) if is_sent else None)

    async def send(
        self,
        model: Model,
        request: ChatRequest,
        in_flight: ModelRequest,
        key: Key,
        timeout_s: float,
        deadline: Deadline,
        on_retry: Callable[[], None],
    ) -> ChatReply:
        """Send a request until it is answered or no retry can help. `on_retry` is called for each retry."""
        waits = RetryWaits(in_flight, key, self._overload, self._hold, on_retry, self._emit)
        answered = await retry.chat(
            model,
            request,
            timeout_s=timeout_s,
            policy=self._policy,
            remaining_s=deadline.remaining_s,
            waiting=waits.waiting,
            rng=self._jitter,
            on_result=waits.note_result,
            within=self._within,
            moved=waits.moved,
        )
        in_flight.answered(answered.reply.usage)
        return answered.reply
