"""How many rollouts and requests may be in flight, and each rollout's place among them.

`limit` rollouts hold a slot, at most twice as many are begun. A rollout whose requests all wait for a retry gives its
slot back meanwhile, so that a server's `Retry-After` does not idle the others; when it goes on it comes before
rollouts that have not begun. Requests under way are bounded on their own, as a rollout may send several at once.

What rollouts share on their own (a lock, a pool of connections) may be in the hands of one that waits for its slot,
while those that have one wait for it. So where nobody asks the model for a while, the first in line goes on beyond the
limit: there is one rollout more in flight, and no request more.

Used from one event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from types import TracebackType
from typing import Protocol

from pytest_osmosis.host.permits import Permit
from pytest_osmosis.models.base import Usage

Ask = Callable[[], Awaitable[Permit]]
"""Asks for the permit of one request."""
Turn = asyncio.Future[None]
"""Done once what one stands in line for is held."""

STALEMATE_S = 1.0
"""For so long nobody takes or gives back anything, and no request is under way: who has a slot may wait for who waits
for one."""


class Bound:
    """At most `limit` are held at once; who waits is served first come, first served.

    `moves` counts how often one was taken or given back.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0
        self.moves = 0
        self._turns: deque[Turn] = deque()

    @property
    def free(self) -> bool:
        """True where one can be had without waiting."""
        return self.held < self.limit and not self._turns

    async def take(self) -> None:
        """Wait for one and hold it."""
        await self.wait_for(self.ask())

    def ask(self) -> Turn:
        """Stand in line; the turn is done once one is held for it."""
        turn: Turn = asyncio.get_running_loop().create_future()
        if self.free:
            self._hold_one()
            turn.set_result(None)
        else:
            self._turns.append(turn)
        return turn

    async def wait_for(self, turn: Turn) -> None:
        """Wait for one's turn. Where the wait is given up, so is the turn."""
        try:
            await turn
        except BaseException:
            if turn in self._turns:
                self._turns.remove(turn)
            elif not turn.cancelled():
                self.give_back()  # it came in the moment the wait was given up
            raise

    def take_beyond(self, turn: Turn | None = None) -> None:
        """Hold one without waiting, even beyond the limit; for a turn that waits in line where one is given."""
        if turn is None:
            self._hold_one()
        elif turn in self._turns:
            self._turns.remove(turn)
            if not turn.done():
                self._hold_one()
                turn.set_result(None)

    def give_back(self) -> None:
        """Hold one less."""
        self.held -= 1
        self.moves += 1
        self._hand_on()

    def resize(self, limit: int) -> None:
        """Change the limit; what is held stays so."""
        self.limit = limit
        self._hand_on()

    def _hand_on(self) -> None:
        while self._turns and self.held < self.limit:
            turn = self._turns.popleft()
            if not turn.done():
                self._hold_one()
                turn.set_result(None)

    def _hold_one(self) -> None:
        self.held += 1
        self.moves += 1


class Slots(Bound):
    """Slots of rollouts; `changed` is called whenever another rollout might begin."""

    def __init__(self, limit: int, changed: Callable[[], None]) -> None:
        super().__init__(limit)
        self.begun = 0
        self._changed = changed

    def begin(self) -> bool:
        """Take a slot for a new rollout; False where none is free."""
        if not self.free or self.begun >= 2 * self.limit:
            return False
        self._hold_one()
        self.begun += 1
        return True

    def end(self, *, holding: bool) -> None:
        """A rollout is over; `holding` says whether it still held its slot."""
        self.begun -= 1
        self.held -= holding
        self._hand_on()

    def _hand_on(self) -> None:
        super()._hand_on()
        self._changed()


class Clock(Protocol):
    """Time that a rollout may use up."""

    def pause(self) -> None:
        """Stop. Idempotent."""

    def resume(self) -> None:
        """Go on. Idempotent."""


class Place:
    """One rollout's place: it holds a slot, unless all that it does is wait for retries.

    Its clock stands still while it waits for others: for its slot after a retry, or for the turn or the permit of a
    request while none of its own is under way or waits for a retry.
    """

    def __init__(self, slots: Slots, requests: Bound, clock: Clock) -> None:
        self.over = False
        self._slots = slots
        self._requests = requests
        self._clock = clock
        self._held = True
        self._turns: list[Turn] = []
        self._under_way = 0
        self._queued = 0
        self._resting = 0

    def request(self, ask: Ask | None = None) -> Request:
        """One more request of this rollout; `ask` gets a permit for each time that it is sent."""
        return Request(self, ask)

    def end(self) -> None:
        """The rollout is over; requests that it forgot get no further turn."""
        self.over = True
        self._slots.end(holding=self._held)

    async def admit(self, ask: Ask | None = None) -> Permit | None:
        """Wait until a request may be sent, last for its permit, as that says when."""
        self._queued += 1
        self._set_clock()
        try:
            await self._take_slot()
            await self._requests.take()
            try:
                permit = await self._permitted(ask)
            except BaseException:
                self._requests.give_back()
                raise
            self._under_way += 1
            return permit
        except BaseException:
            self.go_on()
            raise
        finally:
            self._queued -= 1
            self._set_clock()

    def dismiss(self) -> None:
        """A request is no longer under way."""
        self._under_way -= 1
        self._set_clock()
        self._requests.give_back()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A request waits for its retry inside."""
        self._resting += 1
        self._set_clock()
        if self._held and not (self._under_way or self._queued or self.over):
            self._held = False
            self._slots.give_back()
        try:
            yield
        except BaseException:
            self.go_on()
            raise
        finally:
            self._resting -= 1
            self._set_clock()

    def go_on(self) -> None:
        """A wait was given up: the user's code goes on now, so the slot is taken without a turn."""
        if not (self._held or self.over):
            self._slots.take_beyond()
            self._hold()

    async def _permitted(self, ask: Ask | None) -> Permit | None:
        """The permit, where one is needed. A rollout that is over gets none."""
        permit = await ask() if ask is not None and not self.over else None
        if self.over:
            if permit is not None:
                permit.give_back()
            raise RuntimeError("its rollout is over")
        return permit

    async def _take_slot(self) -> None:
        if self._held:
            return
        turn = self._slots.ask()
        self._turns.append(turn)
        self._look_again(turn)
        try:
            await self._slots.wait_for(turn)
        finally:
            self._turns.remove(turn)
        if self._held or self.over:
            self._slots.give_back()
        else:
            self._hold()

    def _look_again(self, turn: Turn) -> None:
        """Look in a while whether this turn is waited for in vain."""
        moves = self._slots.moves, self._requests.moves
        asyncio.get_running_loop().call_later(STALEMATE_S, self._look, turn, moves)

    def _look(self, turn: Turn, before: tuple[int, int]) -> None:
        """Where nothing has moved since, nor will by an answer, the turn comes beyond the limit."""
        if turn.done():
            return
        slots, requests = self._slots, self._requests
        if (slots.moves, requests.moves) == before and not requests.held and requests.limit:
            slots.take_beyond(turn)
        else:
            self._look_again(turn)

    def _hold(self) -> None:
        """The rollout has its slot; others of its requests that stand in line for it need not wait, and give back."""
        self._held = True
        for turn in self._turns:
            self._slots.take_beyond(turn)

    def _set_clock(self) -> None:
        if self._queued and not (self._under_way or self._resting):
            self._clock.pause()
        else:
            self._clock.resume()


class Request:
    """One request with its retries: an async context that is entered when the request may be sent."""

    def __init__(self, place: Place, ask: Ask | None) -> None:
        self._place = place
        self._ask = ask
        self._permit: Permit | None = None
        self._under_way = False

    def answered(self, usage: Usage | None = None) -> None:
        """It was sent and is over; None: nobody counted its tokens."""
        if self._permit is not None:
            self._permit.answered(usage)

    async def __aenter__(self) -> Request:
        await self._begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    @asynccontextmanager
    async def waiting(self) -> AsyncIterator[None]:
        """Wait for a retry inside; on leaving, the request may be sent again."""
        self._stop()
        with self._place.resting():
            yield
        await self._begin()

    async def _begin(self) -> None:
        self._permit = await self._place.admit(self._ask)
        self._under_way = True

    def _stop(self) -> None:
        if self._under_way:
            self._under_way = False
            self.answered()
            self._place.dismiss()
