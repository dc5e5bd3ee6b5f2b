"""Limits on the rollouts and requests in flight, the slot of each rollout, and permits for requests.

`limit` rollouts hold a slot, and at most twice as many have begun, or fewer if the user's code says so. A rollout
whose requests all wait for a retry releases its slot meanwhile, so that a server's `Retry-After` does not idle the
others. When it continues, it comes before rollouts that have not begun. Requests in flight have a limit of their own,
because one rollout may send several at once. Pauses and overloaded servers lower limits (`HostLimits`). Permits are
requested from the engine because a provider's limits hold for all hosts together.

A rollout that waits for its slot may hold something that rollouts with a slot wait for, such as a lock or a pool of
connections. If no request is in flight for a while, the first in the queue therefore continues beyond the limit: that
makes one more rollout in flight, but not one more request.

Each of these is used from one event loop only.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import count
from typing import Literal, Self

from msgspec import Struct

from pytest_osmosis.host.deadline import Deadline
from pytest_osmosis.host.protocol import AnsweredEvent, AskEvent, Emit, Key, Size, UnusedEvent
from pytest_osmosis.models.base import ChatRequest, Usage
from pytest_osmosis.text.safe import dumps

ANSWER_LIMITS = ("max_tokens", "max_completion_tokens", "max_output_tokens")
"""Sampling keys that limit the length of an answer."""


_NUMBERS = count()
"""The numbers of all permits of this process: its event loops share one engine, which tells permits by them."""
_WAITING: dict[int, asyncio.Future[None]] = {}
"""The requests that wait for their permits, by its number."""


def size_of(request: ChatRequest) -> Size:
    given = map(request.sampling.get, ANSWER_LIMITS)
    limits = [limit for limit in given if isinstance(limit, int) and not isinstance(limit, bool)]
    text = dumps({"messages": list(request.messages), "tools": list(request.tools)})
    return Size(len(text), min(limits) if limits else None)


class PermitClient(Struct, frozen=True):
    """Requests permits from the engine, in any event loop from which `emit` may be called, and reports what became of
    each. Those `of_judges` are under limits of their own."""

    emit: Emit
    of_judges: bool = False

    async def get(self, key: Key, size: Size) -> Permit:
        """Wait for a permit. Cancelling the wait gives the permit back."""
        permit = Permit(next(_NUMBERS), self.emit)
        granted = _WAITING[permit.number] = asyncio.get_running_loop().create_future()
        event: AskEvent = {
            "ev": "ask",
            **key.to_json(),  # type: ignore[typeddict-item]  # it lacks optional fields
            "id": permit.number,
            "chars": size.chars,
            "max_tokens": size.max_tokens,
        }
        self.emit({**event, "judge": True} if self.of_judges else event)
        try:
            await granted
        except BaseException:
            permit.give_back()
            raise
        finally:
            del _WAITING[permit.number]
        return permit


def grant(numbers: Iterable[int]) -> None:
    """Let the requests with these permits be sent. Numbers of cancelled waits have no effect.

    May be called from any thread: code that holds the host's event loop may wait for one.
    """
    for number in numbers:
        granted = _WAITING.get(number)
        if granted is not None:
            with suppress(RuntimeError):  # its loop was closed meanwhile
                granted.get_loop().call_soon_threadsafe(_grant, granted)


def _grant(granted: asyncio.Future[None]) -> None:
    if not granted.done():
        granted.set_result(None)


class Permit:
    """Permission to send one request. The outcome is reported once."""

    def __init__(self, number: int, emit: Callable[[AnsweredEvent | UnusedEvent], None]) -> None:
        self.number = number
        self._emit = emit
        self._reported = False

    def give_back(self) -> None:
        self._report({"ev": "unused", "id": self.number})

    def answered(self, usage: Usage | None) -> None:
        """Report that the request is over; `usage` is None if its tokens were not counted."""
        self._report({"ev": "answered", "id": self.number, "usage": None if usage is None else usage.to_json()})

    def _report(self, event: AnsweredEvent | UnusedEvent) -> None:
        if not self._reported:
            self._reported = True
            self._emit(event)


GetPermit = Callable[[], Awaitable[Permit]]
"""Waits for the permit of one request."""


Waiter = asyncio.Future[None]
"""A place in a queue, done once the waiter holds what it waits for."""

DEADLOCK_S = 1.0
"""After this long without an acquisition, a release or a request in flight, slot holders are assumed to wait for a
rollout that waits for a slot."""


class ResizableSemaphore:
    """At most `limit` are held at once, first come, first served. `moves` counts acquisitions and releases."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.moves = 0
        self._waiters: deque[Waiter] = deque()

    @property
    def free(self) -> bool:
        """True if `acquire` would not wait."""
        return self.held < self.limit and not self._waiters

    async def acquire(self) -> None:
        if self.free:
            self._hold()
        else:
            await self.wait_for(self.join_queue())

    def join_queue(self) -> Waiter:
        """Return a new waiter, which is done already if nothing has to be waited for."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        if self.free:
            self._hold()
            waiter.set_result(None)
        else:
            self._waiters.append(waiter)
        return waiter

    async def wait_for(self, waiter: Waiter) -> None:
        """Wait until `waiter` is done. Cancelling the wait leaves the queue."""
        try:
            await waiter
        except BaseException:
            if waiter in self._waiters:
                self._waiters.remove(waiter)
            elif not waiter.cancelled():
                self.release()  # it was served just as the wait was cancelled
            raise

    def acquire_beyond_limit(self, waiter: Waiter | None = None) -> None:
        """Acquire without waiting, even beyond the limit; with a `waiter`, on its behalf if it is still queued."""
        if waiter is None:
            self._hold()
        elif waiter in self._waiters:
            self._waiters.remove(waiter)
            self._serve(waiter)

    def release(self) -> None:
        self.held -= 1
        self.moves += 1
        self._serve_queue()

    def resize(self, limit: int) -> None:
        """Change the limit. A smaller one takes nothing away from its holders."""
        self.limit = limit
        self._serve_queue()

    def end(self, *, holding: bool) -> None:
        """Count a holder as over; `holding` says whether it still holds: one that waits for a retry does not."""
        if holding:
            self.release()

    def _serve_queue(self) -> None:
        while self._waiters and self.held < self.limit:
            self._serve(self._waiters.popleft())

    def _serve(self, waiter: Waiter) -> None:
        if not waiter.done():
            self._hold()
            waiter.set_result(None)

    def _hold(self) -> None:
        self.held += 1
        self.moves += 1


class Slots(ResizableSemaphore):
    """The slots of a host's rollouts. `on_change` is called whenever another rollout might begin.

    No more than `max_begun` rollouts have begun, nor more than twice the limit.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        super().__init__(limit)
        self.begun = 0
        self.max_begun: float = math.inf
        self._on_change = on_change

    def begin(self) -> bool:
        """Acquire a slot for a new rollout; return False if none is free."""
        if not self.free or self.begun >= min(self.max_begun, 2 * self.limit):
            return False
        self._hold()
        self.begun += 1
        return True

    def end(self, *, holding: bool) -> None:
        """Count a rollout as over; `holding` says whether it still held its slot."""
        self.begun -= 1
        self.held -= holding
        self._serve_queue()

    def _serve_queue(self) -> None:
        super()._serve_queue()
        self._on_change()


class RolloutSlot:
    """The slot of one rollout or scoring, held unless all that it does is wait for retries.

    Its clock is paused while the rollout waits because of others: for its slot after a retry, or for a request that may
    not be sent yet while none of its own is in flight or waits for a retry. A scoring has the clock of the function
    that scores now.
    """

    def __init__(self, slots: ResizableSemaphore, requests: ResizableSemaphore, clock: Deadline | None = None) -> None:
        self.over = False
        self.clock = clock
        self._slots = slots
        self._requests = requests
        self._held = True
        self._waiters: list[Waiter] = []
        self._in_flight = 0
        self._queued = 0
        self._awaiting_retry = 0

    def end(self) -> None:
        """End the rollout. Requests that it left behind are never sent."""
        self.over = True
        self._slots.end(holding=self._held)

    async def begin_request(self, get_permit: GetPermit | None = None) -> Permit | None:
        """Wait until a request may be sent. The permit comes last, because it says when."""
        self._queued += 1
        self._set_clock()
        try:
            await self._acquire_slot()
            await self._requests.acquire()
            try:
                permit = await self._permit(get_permit)
            except BaseException:
                self._requests.release()
                raise
            self._in_flight += 1
            return permit
        except BaseException:
            self._reclaim_slot()
            raise
        finally:
            self._queued -= 1
            self._set_clock()

    def end_request(self) -> None:
        self._in_flight -= 1
        self._set_clock()
        self._requests.release()

    @contextmanager
    def waiting_for_retry(self) -> Iterator[None]:
        self._awaiting_retry += 1
        self._set_clock()
        if self._held and not (self._in_flight or self._queued or self.over):
            self._held = False
            self._slots.release()
        try:
            yield
        except BaseException:
            self._reclaim_slot()
            raise
        finally:
            self._awaiting_retry -= 1
            self._set_clock()

    def _reclaim_slot(self) -> None:
        """Hold the slot at once: a wait was cancelled, and the user's code already continues."""
        if not (self._held or self.over):
            self._slots.acquire_beyond_limit()
            self._hold()

    async def _permit(self, get_permit: GetPermit | None) -> Permit | None:
        """Return the permit, if one is needed. Raise if the rollout is over."""
        permit = await get_permit() if get_permit is not None and not self.over else None
        if self.over:
            if permit is not None:
                permit.give_back()
            raise RuntimeError("its rollout is over")
        return permit

    async def _acquire_slot(self) -> None:
        if self._held:
            return
        waiter = self._slots.join_queue()
        self._waiters.append(waiter)
        self._check_for_deadlock_later(waiter)
        try:
            await self._slots.wait_for(waiter)
        finally:
            self._waiters.remove(waiter)
        if self._held or self.over:
            self._slots.release()
        else:
            self._hold()

    def _check_for_deadlock_later(self, waiter: Waiter) -> None:
        moves = self._slots.moves, self._requests.moves
        asyncio.get_running_loop().call_later(DEADLOCK_S, self._check_for_deadlock, waiter, moves)

    def _check_for_deadlock(self, waiter: Waiter, moves_before: tuple[int, int]) -> None:
        """Serve `waiter` beyond the limit if nothing has moved since, and no answer can change that."""
        if waiter.done():
            return
        slots, requests = self._slots, self._requests
        if (slots.moves, requests.moves) == moves_before and not requests.held and slots.limit and requests.limit:
            slots.acquire_beyond_limit(waiter)
        else:
            self._check_for_deadlock_later(waiter)

    def _hold(self) -> None:
        """Hold the slot. Other requests of this rollout that queue for it are served too, and release at once."""
        self._held = True
        for waiter in self._waiters:
            self._slots.acquire_beyond_limit(waiter)

    def _set_clock(self) -> None:
        if self.clock is None:
            return
        if self._queued and not (self._in_flight or self._awaiting_retry):
            self.clock.pause()
        else:
            self.clock.resume()


class StandbySlot:
    """The slot of code that may hold the host's loop, for its requests in another one: there it has its slot already.

    Its deadline is paused while a request waits for a permit, or for others of `requests`, and none of the same code is
    in flight or waits for a retry.
    """

    def __init__(self, requests: ResizableSemaphore, deadline: Deadline) -> None:
        self._requests = requests
        self._deadline = deadline

    async def begin_request(self, get_permit: GetPermit | None = None) -> Permit | None:
        with self._deadline.paused_blocked():
            await self._requests.acquire()
            try:
                permit = None if get_permit is None else await get_permit()
            except BaseException:
                self._requests.release()
                raise
        self._deadline.count_blocked(works=1)
        return permit

    def end_request(self) -> None:
        self._deadline.count_blocked(works=-1)
        self._requests.release()

    @contextmanager
    def waiting_for_retry(self) -> Iterator[None]:
        self._deadline.count_blocked(works=1)
        try:
            yield
        finally:
            self._deadline.count_blocked(works=-1)


class ModelRequest:
    """One request of a rollout, with its retries: an async context, entered once the request may be sent.

    `get_permit` is called each time that it is to be sent. The permit of one that was not sent is given back.
    """

    def __init__(self, slot: RolloutSlot | StandbySlot, get_permit: GetPermit | None = None) -> None:
        self._slot = slot
        self._get_permit = get_permit
        self._permit: Permit | None = None
        self._in_flight = False
        self.was_sent = False

    def answered(self, usage: Usage | None) -> None:
        """Report that the request is over; `usage` is None if its tokens were not counted."""
        if self._permit is not None:
            self._permit.answered(usage)

    async def __aenter__(self) -> Self:
        await self._begin()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    @asynccontextmanager
    async def waiting_for_retry(self) -> AsyncIterator[None]:
        """A context in which the request waits; it is left once the request may be sent again."""
        self._end()
        with self._slot.waiting_for_retry():
            yield
        await self._begin()

    async def _begin(self) -> None:
        self._permit = await self._slot.begin_request(self._get_permit)
        self._in_flight, self.was_sent = True, False

    def _end(self) -> None:
        if self._in_flight:
            self._in_flight = False
            if self.was_sent:
                self.answered(None)
            elif self._permit is not None:
                self._permit.give_back()
            self._slot.end_request()


class HostLimits:
    """Limits the rollouts (`slots`), requests, scorings and requests to judges in flight. Those in flight may finish.

    `on_change` is called whenever another rollout might begin. Used from one event loop only.
    """

    def __init__(self, limit: int, on_change: Callable[[], None]) -> None:
        self.slots = Slots(limit, on_change)
        self.requests = ResizableSemaphore(limit)
        self.scorings = ResizableSemaphore(limit)
        self.judge_requests = ResizableSemaphore(limit)
        self._limit = self._max_scorings = limit
        self._paused = False
        self._held_until = {"rollouts": 0.0, "judges": 0.0}

    def resize(self, limit: int, begun: int, scorings: int) -> None:
        """Allow `limit` rollouts and requests, `begun` rollouts with those that wait, and this many `scorings`."""
        self._limit, self.slots.max_begun, self._max_scorings = limit, begun, scorings
        self._apply()

    def pause(self, paused: bool) -> None:
        """Begin no rollout, request or scoring until unpaused. The clocks of rollouts that wait for one are paused."""
        self._paused = paused
        self._apply()

    def hold(self, wait_s: float, held: Literal["rollouts", "judges"] = "rollouts") -> None:
        """Begin no rollout and no request for `wait_s`, or send none to judges, because the server has no room.

        Scoring continues.
        """
        loop = asyncio.get_running_loop()
        until = self._held_until[held] = max(self._held_until[held], loop.time() + wait_s)
        loop.call_at(until, self._end_hold, held, until)
        self._apply()

    def _end_hold(self, held: Literal["rollouts", "judges"], until: float) -> None:
        if until == self._held_until[held]:  # not extended since; comparing times would fail if a timer came early
            self._held_until[held] = 0.0
            self._apply()

    def _apply(self) -> None:
        self.scorings.resize(0 if self._paused else self._max_scorings)
        self.slots.resize(0 if self._paused or self._held_until["rollouts"] else self._limit)
        requests = 0 if self._paused else max(1, self._limit)  # without a slot for others, those with one go on
        self.requests.resize(0 if self._held_until["rollouts"] else requests)
        self.judge_requests.resize(0 if self._held_until["judges"] else requests)
