"""Slots of rollouts and limits on requests: when one begins, when one waits, and when a rollout's clock is paused."""

from __future__ import annotations

import asyncio

import pytest

from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.slots import (
    DEADLOCK_S,
    GetPermit,
    ModelRequest,
    Permit,
    ResizableSemaphore,
    RolloutSlot,
    Slots,
    StandbySlot,
)
from tests.clocks import LoopClock, settled


class FakeClock:
    """A clock that knows whether it is running."""

    def __init__(self) -> None:
        self.running = True

    def pause(self) -> None:
        self.running = False

    def resume(self) -> None:
        self.running = True


class FakeHost:
    """The slots and requests of a host."""

    def __init__(self, limit: int) -> None:
        self.changes = 0
        self.slots = Slots(limit, self._changed)
        self.requests = ResizableSemaphore(limit)

    def _changed(self) -> None:
        self.changes += 1

    def begin(self) -> tuple[RolloutSlot, FakeClock]:
        assert self.slots.begin()
        clock = FakeClock()
        return RolloutSlot(self.slots, self.requests, clock), clock


async def test_rollouts_begin_up_to_the_limit_and_again_when_one_ends() -> None:
    host = FakeHost(2)
    first, _ = host.begin()
    host.begin()
    assert not host.slots.begin()
    before = host.changes
    first.end()
    assert host.changes > before
    assert host.slots.begin()


async def test_waiters_are_served_in_order() -> None:
    semaphore, served = ResizableSemaphore(1), []

    async def take(name: str) -> None:
        await semaphore.acquire()
        served.append(name)

    tasks = [asyncio.create_task(take(name)) for name in "abc"]
    await settled()
    assert served == ["a"]
    semaphore.release()
    await settled()
    assert served == ["a", "b"]
    semaphore.resize(2)
    await asyncio.gather(*tasks)
    assert served == ["a", "b", "c"]
    assert semaphore.held == 2


async def test_a_cancelled_wait_holds_nothing_even_if_it_was_just_served() -> None:
    semaphore = ResizableSemaphore(1)
    await semaphore.acquire()
    waits = [asyncio.create_task(semaphore.acquire()) for _ in range(3)]
    await settled()
    waits[0].cancel()
    await settled()
    semaphore.release()  # serves the second waiter ...
    waits[1].cancel()  # ... which is cancelled before it wakes
    await settled()
    assert waits[2].done()
    assert semaphore.held == 1
    semaphore.release()
    assert semaphore.free


async def test_a_rollout_that_waits_for_a_retry_releases_its_slot_and_continues_before_new_rollouts() -> None:
    host = FakeHost(1)
    slot, clock = host.begin()
    go = asyncio.Event()

    async def ask() -> None:
        async with ModelRequest(slot) as request:
            async with request.waiting_for_retry():
                await go.wait()

    task = asyncio.create_task(ask())
    await settled()
    assert (host.slots.held, host.requests.held, clock.running) == (0, 0, True)
    other, _ = host.begin()
    go.set()
    await settled()
    assert not task.done()
    assert not clock.running, "waiting for the slot is not its own clock"
    assert not host.slots.begin()
    other.end()
    await task
    assert (host.slots.held, clock.running) == (1, True)
    slot.end()
    assert (host.slots.held, host.slots.begun) == (0, 0)


async def test_at_most_twice_the_limit_of_rollouts_have_begun() -> None:
    host = FakeHost(1)
    rollouts = [host.begin()[0]]
    waits = []
    for _ in range(2):

        async def wait(slot: RolloutSlot = rollouts[-1]) -> None:
            async with ModelRequest(slot) as request, request.waiting_for_retry():
                await asyncio.Event().wait()

        waits.append(asyncio.create_task(wait()))
        await settled()
        if len(rollouts) < 2:
            rollouts.append(host.begin()[0])
    assert host.slots.held == 0
    assert not host.slots.begin()
    for task in waits:
        task.cancel()
    await asyncio.gather(*waits, return_exceptions=True)


async def test_a_rollout_keeps_its_slot_while_another_of_its_requests_is_under_way() -> None:
    host = FakeHost(2)
    slot, _ = host.begin()
    async with ModelRequest(slot), ModelRequest(slot) as second, second.waiting_for_retry():
        assert host.slots.held == 1
        assert host.requests.held == 1


async def test_a_cancelled_wait_takes_the_slot_at_once_because_user_code_continues() -> None:
    host = FakeHost(1)
    slot, clock = host.begin()
    others = []

    async def give_up() -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            others.append(host.begin()[0])
            raise TimeoutError

    with pytest.raises(TimeoutError):
        await give_up()
    assert (host.slots.held, clock.running) == (2, True)
    others[0].end()
    assert not host.slots.begin(), "the first rollout still runs"
    slot.end()
    assert (host.slots.held, host.slots.begun, host.requests.held) == (0, 0, 0)


async def test_all_waiting_requests_of_a_rollout_continue_with_its_one_slot() -> None:
    host = FakeHost(1)
    first, _ = host.begin()
    due = asyncio.Event()

    async def refused_once() -> None:
        async with ModelRequest(first) as request, request.waiting_for_retry():
            await due.wait()

    refused = [asyncio.create_task(refused_once()) for _ in range(2)]
    await settled()
    second, _ = host.begin()  # both were refused, and wait
    due.set()
    await settled()
    assert not any(task.done() for task in refused)
    second.end()
    await settled()
    assert all(task.done() for task in refused)
    assert host.slots.held == 1
    first.end()
    assert host.slots.held == 0


async def test_a_request_that_waits_for_the_slot_continues_when_another_wait_of_its_rollout_is_cancelled() -> None:
    host = FakeHost(1)
    first, _ = host.begin()

    async def refused() -> None:
        async with ModelRequest(first) as request, request.waiting_for_retry():
            await asyncio.Event().wait()

    async def later() -> None:
        async with ModelRequest(first):
            pass

    waits = asyncio.create_task(refused())
    await settled()
    second, _ = host.begin()
    asks = asyncio.create_task(later())
    await settled()
    assert not asks.done()
    waits.cancel()
    await settled()
    assert asks.done()
    assert host.slots.held == 2, "one above the limit for a moment"
    first.end()
    second.end()
    assert host.slots.held == 0


@pytest.mark.parametrize("after", ["the wait", "the slot"])
async def test_a_request_that_outlives_its_rollout_is_not_sent_and_keeps_no_slot(after: str) -> None:
    host = FakeHost(1)
    slot, _ = host.begin()
    go = asyncio.Event()

    async def ask() -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            await go.wait()

    task = asyncio.create_task(ask())
    await settled()
    other, _ = host.begin()
    if after == "the slot":
        go.set()
        await settled()
    slot.end()
    go.set()
    other.end()
    with pytest.raises(RuntimeError, match="its rollout is over"):
        await task
    assert (host.slots.held, host.slots.begun, host.requests.held) == (0, 0, 0)
    assert host.slots.begin()


async def test_the_clock_is_paused_while_no_request_of_a_rollout_may_be_sent() -> None:
    host = FakeHost(2)
    greedy, _ = host.begin()
    slot, clock = host.begin()
    async with ModelRequest(greedy), ModelRequest(greedy) as second:
        task = asyncio.create_task(_ask(slot))
        await settled()
        assert not clock.running
        async with second.waiting_for_retry():
            await task
            assert clock.running


async def test_the_clock_is_paused_once_the_only_request_in_flight_is_answered_and_another_waits() -> None:
    host = FakeHost(1)
    slot, clock = host.begin()
    granted = asyncio.get_running_loop().create_future()

    async def permitted() -> Permit:
        await granted
        return Permit(0, lambda event: None)

    async with ModelRequest(slot):
        task = asyncio.create_task(_ask(slot, permitted))
        await settled()
        assert clock.running
    await settled()
    assert not clock.running, "its second request waits for its permit"
    granted.set_result(None)
    await task
    assert clock.running


async def test_the_clock_runs_while_one_request_waits_for_a_retry_and_another_for_its_turn() -> None:
    host = FakeHost(2)
    greedy, _ = host.begin()
    slot, clock = host.begin()
    due = asyncio.Event()

    async def refused() -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            await due.wait()

    async with ModelRequest(greedy):
        waits = asyncio.create_task(refused())
        await settled()
        async with ModelRequest(greedy):
            task = asyncio.create_task(_ask(slot))
            await settled()
            assert clock.running
            due.set()
            await settled()
            assert not clock.running, "both wait for their turns"
    await asyncio.gather(waits, task)
    assert clock.running


async def _ask(slot: RolloutSlot, get_permit: GetPermit | None = None) -> None:
    async with ModelRequest(slot, get_permit):
        pass


async def test_a_smaller_limit_lets_rollouts_in_flight_finish() -> None:
    host = FakeHost(2)
    first, _ = host.begin()
    second, _ = host.begin()
    host.slots.resize(1)
    first.end()
    assert not host.slots.begin()
    second.end()
    assert host.slots.begin()


class RolloutsWithALock:
    """Rollouts that share a lock around their requests, each of which is refused at first."""

    def __init__(self, limit: int, rollouts: int, holders: int) -> None:
        self.host = FakeHost(limit)
        self.pool = asyncio.Semaphore(holders)
        self.waiting = rollouts
        self.most = 0
        self.tasks: list[asyncio.Task[None]] = []
        self.host.slots._on_change = self.begin
        self.begin()

    def begin(self) -> None:
        while self.waiting and self.host.slots.begin():
            self.waiting -= 1
            self.tasks.append(
                asyncio.create_task(self.roll(RolloutSlot(self.host.slots, self.host.requests, FakeClock())))
            )

    async def roll(self, slot: RolloutSlot) -> None:
        try:
            async with self.pool, ModelRequest(slot) as request:
                self.most = max(self.most, self.host.requests.held)
                async with request.waiting_for_retry():
                    await asyncio.sleep(DEADLOCK_S / 2)
                self.most = max(self.most, self.host.requests.held)
        finally:
            slot.end()

    async def end(self) -> None:
        while self.waiting or not all(task.done() for task in self.tasks):
            await asyncio.wait(self.tasks)


@pytest.mark.parametrize(("limit", "holders"), [(1, 1), (2, 1), (3, 2), (4, 4)])
async def test_rollouts_that_wait_for_a_lock_held_without_a_slot_do_not_deadlock(limit: int, holders: int) -> None:
    clock, rollouts = LoopClock(), RolloutsWithALock(limit, 20, holders)
    ended = asyncio.create_task(rollouts.end())
    for _ in range(200):
        await clock.advance(DEADLOCK_S)
    assert ended.done(), "they wait for each other"
    assert rollouts.most <= limit, "never a request above the limit"
    host = rollouts.host
    assert (host.slots.held, host.slots.begun, host.requests.held) == (0, 0, 0)


async def test_a_rollout_waits_for_its_slot_as_long_as_others_have_requests_in_flight() -> None:
    clock, host = LoopClock(), FakeHost(1)
    slot, _ = host.begin()
    go, asked = asyncio.Event(), asyncio.Event()

    async def ask() -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            await go.wait()
        asked.set()

    task = asyncio.create_task(ask())
    await settled()
    other, _ = host.begin()
    async with ModelRequest(other):
        go.set()
        for _ in range(10):
            await clock.advance(DEADLOCK_S)
        assert not asked.is_set()
    await clock.advance(DEADLOCK_S)
    assert not asked.is_set(), "a request has just ended"
    await clock.advance(DEADLOCK_S)
    assert asked.is_set()
    assert host.slots.held == 2, "the other rollout is busy with something else"
    await task


async def test_waiting_rollouts_continue_beyond_the_limit_one_at_a_time() -> None:
    clock, host, due = LoopClock(), FakeHost(2), asyncio.Event()
    beyond: list[int] = []
    rollouts = [host.begin()[0] for _ in range(2)]

    async def ask(slot: RolloutSlot) -> None:
        async with ModelRequest(slot) as request, request.waiting_for_retry():
            await due.wait()
        beyond.append(host.slots.held)
        await settled()

    tasks = [asyncio.create_task(ask(slot)) for slot in rollouts]
    await settled()
    host.begin()
    host.begin()
    due.set()
    await settled()
    for expected in ([], [3], [3], [3, 4]):
        assert beyond == expected
        await clock.advance(DEADLOCK_S)
    await asyncio.gather(*tasks)


async def test_code_that_may_hold_the_loop_spends_no_time_while_its_request_waits_elsewhere() -> None:
    """It waits for another request first, and then for its permit."""
    clock, requests, granted = LoopClock(), ResizableSemaphore(1), asyncio.Event()

    async def permit() -> Permit:
        await granted.wait()
        return Permit(1, lambda event: None)

    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        await requests.acquire()
        waiting = asyncio.create_task(StandbySlot(requests, deadline).begin_request(permit))
        await settled()
        for go_on in (requests.release, granted.set):
            await clock.advance(100)
            assert deadline.spent_s() == 0
            go_on()
        await waiting
        await clock.advance(100)
        assert deadline.spent_s() == 100


async def test_requests_elsewhere_that_wait_only_for_one_of_the_same_code_spend_its_time() -> None:
    clock, requests = LoopClock(), ResizableSemaphore(1)
    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        first, second = (StandbySlot(requests, deadline) for _ in range(2))
        await first.begin_request()
        waiting = asyncio.create_task(second.begin_request())
        await settled()
        await clock.advance(100)
        assert deadline.spent_s() == 100, "the first is in flight"
        others = requests.join_queue()
        first.end_request()
        await waiting
        with second.waiting_for_retry():
            second.end_request()
            await others
            again = asyncio.create_task(first.begin_request())
            await settled()
            await clock.advance(100)
            assert deadline.spent_s() == 200, "the second waits for its retry"
        await clock.advance(100)
        assert deadline.spent_s() == 200, "the first waits for another one"
        requests.release()
        await again
        await clock.advance(100)
        assert deadline.spent_s() == 300


async def test_a_request_elsewhere_that_gets_no_permit_leaves_its_place_to_others() -> None:
    requests = ResizableSemaphore(1)

    async def permit() -> Permit:
        raise RuntimeError

    async with Deadline(1000, StallTime(), lambda task, times: None) as deadline:
        with pytest.raises(RuntimeError):
            await StandbySlot(requests, deadline).begin_request(permit)
    assert requests.free
