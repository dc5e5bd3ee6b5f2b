"""Slots of rollouts and limits on requests: when one begins, when one waits, and when a rollout's clock is paused."""

from __future__ import annotations

import asyncio

import pytest

from pytest_osmosis.host.deadline import Deadline, StallTime
from pytest_osmosis.host.slots import (
    DEADLOCK_S,
    HostLimits,
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


# -- the limits of a host under pauses and holds ----------------------------------------------------------------

SOON_S = 1.0
LONG_S = 600.0
LIMIT = 2


def host_limits() -> HostLimits:
    return HostLimits(LIMIT, lambda: None)


async def test_a_hold_ends_even_if_its_timer_comes_early() -> None:
    """A coarse clock may fire timers early: by up to 16 ms on Windows."""
    limits = host_limits()
    limits.hold(LONG_S)
    assert limits.slots.limit == 0
    asyncio.get_running_loop()._clock_resolution = 2 * LONG_S  # type: ignore[attr-defined]
    for _ in range(3):
        await asyncio.sleep(0)
    assert limits.slots.limit == LIMIT


async def test_a_hold_lasts_as_long_as_the_longest_requested() -> None:
    clock, limits = LoopClock(), host_limits()
    limits.hold(LONG_S)
    limits.hold(SOON_S)
    await clock.advance(SOON_S)
    assert limits.slots.limit == 0
    await clock.advance(LONG_S - SOON_S)
    assert limits.slots.limit == LIMIT


async def test_a_pause_outlasts_a_hold_and_a_hold_outlasts_a_pause() -> None:
    clock, limits = LoopClock(), host_limits()
    limits.hold(SOON_S)
    limits.pause(True)
    await clock.advance(SOON_S)
    assert limits.slots.limit == 0
    limits.hold(LONG_S)
    limits.pause(False)
    assert limits.slots.limit == 0
    limits.resize(LIMIT + 1, 2 * LIMIT, LIMIT)
    assert limits.slots.limit == 0
    await clock.advance(LONG_S)
    assert limits.slots.limit == LIMIT + 1


async def test_scoring_continues_during_a_hold_and_stops_during_a_pause() -> None:
    limits = host_limits()
    limits.hold(LONG_S)
    assert (limits.slots.limit, limits.requests.limit, limits.scorings.limit) == (0, 0, LIMIT)
    limits.pause(True)
    assert limits.scorings.limit == 0
