"""Who may begin, who waits, and whose clock stands still: slots of rollouts, rights of requests, a rollout's place."""

from __future__ import annotations

import asyncio

import pytest

from pytest_osmosis.host import slots
from pytest_osmosis.host.permits import Permit
from pytest_osmosis.host.slots import Ask, Bound, Place, Slots


class Time:
    """A clock that says whether it runs."""

    def __init__(self) -> None:
        self.runs = True

    def pause(self) -> None:
        self.runs = False

    def resume(self) -> None:
        self.runs = True


class House:
    """Slots, requests, and places in them."""

    def __init__(self, limit: int) -> None:
        self.changes = 0
        self.slots = Slots(limit, self._changed)
        self.requests = Bound(limit)

    def _changed(self) -> None:
        self.changes += 1

    def begin(self) -> tuple[Place, Time]:
        assert self.slots.begin()
        time = Time()
        return Place(self.slots, self.requests, time), time


async def settled() -> None:
    """Every task has gone as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_slots_begin_up_to_the_limit_and_say_when_another_may() -> None:
    house = House(2)
    first, _ = house.begin()
    house.begin()
    assert not house.slots.begin()
    before = house.changes
    first.end()
    assert house.changes > before
    assert house.slots.begin()


async def test_who_waits_for_a_bound_is_served_in_order() -> None:
    bound, served = Bound(1), []

    async def take(name: str) -> None:
        await bound.take()
        served.append(name)

    tasks = [asyncio.create_task(take(name)) for name in "abc"]
    await settled()
    assert served == ["a"]
    bound.give_back()
    await settled()
    assert served == ["a", "b"]
    bound.resize(2)
    await asyncio.gather(*tasks)
    assert served == ["a", "b", "c"]
    assert bound.held == 2


async def test_a_wait_that_was_given_up_keeps_nothing_even_when_its_turn_had_come() -> None:
    bound = Bound(1)
    await bound.take()
    waits = [asyncio.create_task(bound.take()) for _ in range(3)]
    await settled()
    waits[0].cancel()
    await settled()
    bound.give_back()  # the turn is the second one's ...
    waits[1].cancel()  # ... who is cancelled before it wakes
    await settled()
    assert waits[2].done()
    assert bound.held == 1
    bound.give_back()
    assert bound.free


async def test_a_rollout_that_only_waits_for_a_retry_gives_its_slot_back_and_resumes_before_new_ones() -> None:
    house = House(1)
    place, time = house.begin()
    go = asyncio.Event()

    async def ask() -> None:
        async with place.request() as request:
            async with request.waiting():
                await go.wait()

    task = asyncio.create_task(ask())
    await settled()
    assert (house.slots.held, house.requests.held, time.runs) == (0, 0, True)
    other, _ = house.begin()
    go.set()
    await settled()
    assert not task.done()
    assert not time.runs, "waiting for the slot is not its own time"
    assert not house.slots.begin()
    other.end()
    await task
    assert (house.slots.held, time.runs) == (1, True)
    place.end()
    assert (house.slots.held, house.slots.begun) == (0, 0)


async def test_no_more_than_twice_the_limit_are_begun() -> None:
    house = House(1)
    places = [house.begin()[0]]
    waits = []
    for _ in range(2):

        async def wait(place: Place = places[-1]) -> None:
            async with place.request() as request, request.waiting():
                await asyncio.Event().wait()

        waits.append(asyncio.create_task(wait()))
        await settled()
        if len(places) < 2:
            places.append(house.begin()[0])
    assert house.slots.held == 0
    assert not house.slots.begin()
    for task in waits:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_a_rollout_keeps_its_slot_while_another_of_its_requests_is_under_way() -> None:
    house = House(2)
    place, _ = house.begin()
    async with place.request(), place.request() as second, second.waiting():
        assert house.slots.held == 1
        assert house.requests.held == 1


async def test_a_wait_that_is_given_up_takes_the_slot_at_once_as_user_code_goes_on() -> None:
    house = House(1)
    place, time = house.begin()
    others = []

    async def give_up() -> None:
        async with place.request() as request, request.waiting():
            others.append(house.begin()[0])
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await give_up()
    assert (house.slots.held, time.runs) == (2, True)
    others[0].end()
    assert not house.slots.begin(), "the first one still goes on"
    place.end()
    assert (house.slots.held, house.slots.begun, house.requests.held) == (0, 0, 0)


async def test_requests_of_one_rollout_that_wait_for_its_turn_together_go_on_with_its_one_slot() -> None:
    house = House(1)
    first, _ = house.begin()
    due = asyncio.Event()

    async def refused_once() -> None:
        async with first.request() as request, request.waiting():
            await due.wait()

    refused = [asyncio.create_task(refused_once()) for _ in range(2)]
    await settled()
    second, _ = house.begin()  # both were refused, and wait
    due.set()
    await settled()
    assert not any(task.done() for task in refused)
    second.end()
    await settled()
    assert all(task.done() for task in refused)
    assert house.slots.held == 1
    first.end()
    assert house.slots.held == 0


async def test_a_request_that_waits_for_its_rollouts_turn_goes_on_when_a_wait_beside_it_is_given_up() -> None:
    house = House(1)
    first, _ = house.begin()

    async def refused() -> None:
        async with first.request() as request, request.waiting():
            await asyncio.Event().wait()

    async def later() -> None:
        async with first.request():
            pass

    waits = asyncio.create_task(refused())
    await settled()
    second, _ = house.begin()
    asks = asyncio.create_task(later())
    await settled()
    assert not asks.done()
    waits.cancel()
    await settled()
    assert asks.done()
    assert house.slots.held == 2, "for the moment one more than the limit"
    first.end()
    second.end()
    assert house.slots.held == 0


@pytest.mark.parametrize("after", ["the wait", "the slot"])
async def test_a_request_that_outlives_its_rollout_gets_no_turn_and_keeps_no_slot(after: str) -> None:
    house = House(1)
    place, _ = house.begin()
    go = asyncio.Event()

    async def ask() -> None:
        async with place.request() as request, request.waiting():
            await go.wait()

    task = asyncio.create_task(ask())
    await settled()
    other, _ = house.begin()
    if after == "the slot":
        go.set()
        await settled()
    place.end()
    go.set()
    other.end()
    with pytest.raises(RuntimeError, match="its rollout is over"):
        await task
    assert (house.slots.held, house.slots.begun, house.requests.held) == (0, 0, 0)
    assert house.slots.begin()


async def test_the_clock_stands_still_while_no_request_of_a_rollout_gets_its_turn() -> None:
    house = House(2)
    greedy, _ = house.begin()
    place, time = house.begin()
    async with greedy.request(), greedy.request() as second:
        task = asyncio.create_task(_ask(place))
        await settled()
        assert not time.runs
        async with second.waiting():
            await task
            assert time.runs


async def test_the_clock_stands_still_once_the_only_request_under_way_beside_one_that_waits_is_answered() -> None:
    house = House(1)
    place, time = house.begin()
    granted = asyncio.get_running_loop().create_future()

    async def permitted() -> Permit:
        await granted
        return Permit(0, lambda event: None)

    async with place.request():
        task = asyncio.create_task(_ask(place, permitted))
        await settled()
        assert time.runs
    await settled()
    assert not time.runs, "its second request waits for its permit"
    granted.set_result(None)
    await task
    assert time.runs


async def test_the_clock_runs_while_a_request_waits_for_its_retry_though_one_beside_it_waits_for_its_turn() -> None:
    house = House(2)
    greedy, _ = house.begin()
    place, time = house.begin()
    due = asyncio.Event()

    async def refused() -> None:
        async with place.request() as request, request.waiting():
            await due.wait()

    async with greedy.request():
        waits = asyncio.create_task(refused())
        await settled()
        async with greedy.request():
            task = asyncio.create_task(_ask(place))
            await settled()
            assert time.runs
            due.set()
            await settled()
            assert not time.runs, "both wait for their turns"
    await asyncio.gather(waits, task)
    assert time.runs


async def _ask(place: Place, ask: Ask | None = None) -> None:
    async with place.request(ask):
        pass


async def test_a_smaller_limit_lets_what_is_in_flight_end() -> None:
    house = House(2)
    first, _ = house.begin()
    second, _ = house.begin()
    house.slots.resize(1)
    first.end()
    assert not house.slots.begin()
    second.end()
    assert house.slots.begin()


class Sharing:
    """Rollouts that share a lock around their requests, of which each is sent away at first."""

    def __init__(self, limit: int, rollouts: int, holders: int) -> None:
        self.house = House(limit)
        self.pool = asyncio.Semaphore(holders)
        self.waiting = rollouts
        self.most = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.house.slots._changed = self.begin
        self.begin()

    def begin(self) -> None:
        while self.waiting and self.house.slots.begin():
            self.waiting -= 1
            self.tasks.append(asyncio.create_task(self.roll(Place(self.house.slots, self.house.requests, Time()))))

    async def roll(self, place: Place) -> None:
        try:
            async with self.pool, place.request() as request:
                self.most = max(self.most, self.house.requests.held)
                async with request.waiting():
                    await asyncio.sleep(0.005)
                self.most = max(self.most, self.house.requests.held)
        finally:
            place.end()

    async def end(self) -> None:
        while self.waiting or not all(task.done() for task in self.tasks):
            await asyncio.wait(self.tasks)


@pytest.mark.parametrize(("limit", "holders"), [(1, 1), (2, 1), (3, 2), (4, 4)])
async def test_rollouts_that_wait_for_what_one_without_a_slot_holds_do_not_wait_for_good(
    monkeypatch: pytest.MonkeyPatch, limit: int, holders: int
) -> None:
    monkeypatch.setattr(slots, "STALEMATE_S", 0.01)
    sharing = Sharing(limit, 20, holders)
    await asyncio.wait_for(sharing.end(), 60)
    assert sharing.most <= limit, "never a request more"
    house = sharing.house
    assert (house.slots.held, house.slots.begun, house.requests.held) == (0, 0, 0)


async def test_who_waits_for_a_slot_waits_on_while_others_ask_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "STALEMATE_S", 0.01)
    house = House(1)
    place, _ = house.begin()
    go, asked = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        async with place.request() as request, request.waiting():
            await go.wait()
        asked.set()

    task = asyncio.create_task(ask())
    await settled()
    other, _ = house.begin()
    async with other.request():
        go.set()
        await asyncio.sleep(0.1)
        assert not asked.is_set()
    await asked.wait()
    assert house.slots.held == 2, "it has something else to do"
    await task


async def test_one_at_a_time_goes_on_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slots, "STALEMATE_S", 0.01)
    house, beyond, due = House(2), [], asyncio.Event()
    places = [house.begin()[0] for _ in range(2)]

    async def ask(place: Place) -> None:
        async with place.request() as request, request.waiting():
            await due.wait()
        beyond.append(house.slots.held)
        await settled()

    tasks = [asyncio.create_task(ask(place)) for place in places]
    await settled()
    house.begin()
    house.begin()
    due.set()
    await asyncio.gather(*tasks)
    assert beyond == [3, 4]
