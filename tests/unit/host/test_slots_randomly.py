"""Slots and requests under random events: whatever rollouts do with their requests, none of them waits forever.

Each seed is a host with a few rollouts. One event after another happens to it: an answer, a refusal, the end of a wait
for a retry, a permit, a cancelled request or rollout, a rollout that ends before its requests do, a new limit. The
invariants are checked after each. In the end everything that blocks is released.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Literal, cast

import pytest

from pytest_osmosis.host.deadline import Deadline
from pytest_osmosis.host.slots import ModelRequest, Permit, ResizableSemaphore, RolloutSlot, Slots
from tests.unit.host.test_slots import FakeClock

State = Literal["waits for its turn", "in flight", "waits for a retry"]
SEEDS = range(200)
ROLLOUTS = 6
STEPS = 60
STEPS_TO_THE_END = 150


class SentRequest:
    """A request as its rollout sees it."""

    def __init__(self, world: World, slot: RolloutSlot) -> None:
        self.state: State = "waits for its turn"
        self._world = world
        self._slot = slot
        self.task = asyncio.create_task(self._sent())

    async def _sent(self) -> None:
        async with ModelRequest(self._slot, self._world.get_permit if self._world.permits else None) as request:
            while await self._refused():
                await self._waits(request)

    async def _refused(self) -> bool:
        self.state = "in flight"
        return await self._world.blocked("answer", self) == "refused"

    async def _waits(self, request: ModelRequest) -> None:
        self.state = "waits for a retry"
        async with request.waiting_for_retry():
            await self._world.blocked("retry", self)
            self.state = "waits for its turn"


class FakeRollout:
    """A rollout that sends several requests at once and ends in one of many ways."""

    def __init__(self, world: World) -> None:
        self.clock = FakeClock()
        self.slot = RolloutSlot(world.slots, world.requests, cast(Deadline, self.clock))
        self.requests: list[SentRequest] = []
        self._world = world
        self.task = asyncio.create_task(self._perform())

    @property
    def states(self) -> list[State]:
        return [request.state for request in self.requests if not request.task.done()]

    async def _perform(self) -> None:
        try:
            for _ in range(self._world.random.randrange(1, 4)):
                await self._turn(self._world.random.randrange(1, 4))
        finally:
            self.slot.end()

    async def _turn(self, n: int) -> None:
        requests = [SentRequest(self._world, self.slot) for _ in range(n)]
        self.requests += requests
        tasks = [request.task for request in requests]
        match self._world.random.randrange(self._world.calm, 4):
            case 0:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            case 1:
                await asyncio.gather(*tasks, return_exceptions=True)
            case 2:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # and the others continue
            case 3:
                await self._world.blocked("own code", None)


class World:
    """A host's slots and requests, its rollouts, and the futures that block them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.calm = self.random.random() < 0.3  # nothing is cancelled, and the limit stays
        self.permits = self.random.random() < 0.5
        self.limit = self.random.randrange(1, 4)
        self.slots = Slots(self.limit, self.begin)
        self.requests = ResizableSemaphore(self.limit)
        self.queued = ROLLOUTS
        self.rollouts: list[FakeRollout] = []
        self.blocking: list[tuple[str, SentRequest | None, asyncio.Future[str]]] = []
        self.reported: list[int] = []
        self.permits_requested = 0

    def begin(self) -> None:
        while self.queued and self.slots.begin():
            assert self.slots.begun <= 2 * self.limit
            self.queued -= 1
            self.rollouts.append(FakeRollout(self))

    async def blocked(self, kind: str, request: SentRequest | None) -> str:
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.blocking.append((kind, request, future))
        return await future

    async def get_permit(self) -> Permit:
        permit = Permit(self.permits_requested, lambda event: self.reported.append(event["id"]))
        self.permits_requested += 1
        try:
            await self.blocked("permit", None)
        except BaseException:
            permit.give_back()
            raise
        return permit

    def resize(self, limit: int) -> None:
        """Set another limit, as a pause, an overloaded server or the engine would."""
        self.limit = limit
        self.requests.resize(limit)
        self.slots.resize(limit)

    def unblock(self, refused: float) -> SentRequest | None:
        """Unblock one of the blocked. Return the request that was refused, if any."""
        self.blocking = [each for each in self.blocking if not each[2].done()]
        if not self.blocking:
            return None
        kind, request, future = self.blocking.pop(self.random.randrange(len(self.blocking)))
        is_refused = kind == "answer" and self.random.random() < refused
        future.set_result("refused" if is_refused else "")
        return request if is_refused else None

    def cancel_something(self) -> None:
        tasks = [request.task for rollout in self.rollouts for request in rollout.requests] * 3
        tasks += [rollout.task for rollout in self.rollouts if rollout.requests]
        live = [task for task in tasks if not task.done()]
        if live:
            self.random.choice(live).cancel()

    async def step(self) -> None:
        """Let something happen, sometimes two things at once, and every task run until it waits."""
        refused_request = None
        for _ in range(1 + (self.random.random() < 0.3)):
            chance = self.random.random()
            if self.calm or chance < 0.75:
                refused_request = self.unblock(0.5)
            elif chance < 0.9:
                self.cancel_something()
            else:
                self.resize(self.random.randrange(4))
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(0)
        before = self.requests.held
        await settled()
        self.check(max(before, self.requests.limit))
        if refused_request is not None:
            self.check_slot_given_back(refused_request)

    def check(self, most_requests: int) -> None:
        """Check what holds whenever every task waits."""
        live = [rollout for rollout in self.rollouts if not rollout.task.done()]
        in_flight = sum(rollout.states.count("in flight") for rollout in self.rollouts)
        assert in_flight <= self.requests.held <= most_requests
        assert self.slots.begun == len(live)
        assert self.slots.held == sum(rollout.slot._held for rollout in live)
        assert self.slots.held <= self.limit or not self.calm
        for semaphore in (self.slots, self.requests):
            assert not semaphore._waiters or semaphore.held >= semaphore.limit, "a waiter could be served"
        assert not self.queued or not self.slots.free or self.slots.begun >= 2 * self.limit, "another could begin"
        for rollout in live:
            only_waits = set(rollout.states) == {"waits for its turn"}
            assert rollout.clock.running != only_waits, rollout.states
            assert rollout.slot._held or "in flight" not in rollout.states

    def check_slot_given_back(self, refused: SentRequest) -> None:
        """Check that a rollout holds no slot if its last request in flight was refused and it only waits."""
        for rollout in self.rollouts:
            if refused in rollout.requests and set(rollout.states) == {"waits for a retry"} and not rollout.task.done():
                assert not rollout.slot._held or not self.calm

    async def end(self) -> None:
        """Unblock everything, and check that every rollout ends and nothing is held."""
        self.resize(max(1, self.limit))
        for _ in range(STEPS_TO_THE_END):
            await settled()
            self.unblock(refused=0.1)
        await settled()
        waiting = [(rollout.states, rollout.task.done()) for rollout in self.rollouts if rollout.states]
        assert not waiting, waiting
        assert all(rollout.task.done() for rollout in self.rollouts)
        assert (self.queued, self.slots.held, self.slots.begun, self.requests.held) == (0, 0, 0, 0)
        assert not self.slots._waiters
        assert not self.requests._waiters
        assert sorted(self.reported) == list(range(self.permits_requested)), (
            "what became of each permit is reported once"
        )
        await asyncio.gather(*self.tasks(), return_exceptions=True)

    def tasks(self) -> list[asyncio.Task[None]]:
        return [
            task
            for rollout in self.rollouts
            for task in (rollout.task, *(request.task for request in rollout.requests))
        ]


async def settled() -> None:
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    while True:
        await asyncio.sleep(0)
        if not ready:
            return


async def live(seed: int) -> None:
    world = World(seed)
    world.begin()
    try:
        for _ in range(STEPS):
            await world.step()
        await world.end()
    finally:
        world.queued = 0
        for task in world.tasks():
            task.cancel()
        await asyncio.gather(*world.tasks(), return_exceptions=True)


@pytest.mark.slow
async def test_no_request_waits_forever_and_every_clock_is_right_after_random_events() -> None:
    for seed in SEEDS:
        try:
            await live(seed)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
