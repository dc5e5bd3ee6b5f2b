"""Slots and rights in the hands of chance: whatever rollouts do with their requests, nobody waits for good.

Each seed is a host with a few rollouts. One thing after the other happens to it: an answer, a refusal, a retry that is
due, a permit, a request or a rollout given up, a rollout that ends before its requests do, another limit. What must
hold is looked at after each; in the end all that blocks is let go.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Literal

from pytest_osmosis.host.permits import Permit
from pytest_osmosis.host.slots import Bound, Place, Request, Slots
from tests.unit.test_slots import Time

State = Literal["waits for its turn", "under way", "waits for a retry"]
SEEDS = range(200)
ROLLOUTS = 6
STEPS = 60
STEPS_TO_THE_END = 150


class Asked:
    """A request as its rollout sees it."""

    def __init__(self, world: World, place: Place) -> None:
        self.state: State = "waits for its turn"
        self._world = world
        self._place = place
        self.task = asyncio.create_task(self._sent())

    async def _sent(self) -> None:
        async with self._place.request(self._world.ask if self._world.permits else None) as request:
            while await self._refused():
                await self._waits(request)

    async def _refused(self) -> bool:
        self.state = "under way"
        return await self._world.blocked("answer", self) == "refused"

    async def _waits(self, request: Request) -> None:
        self.state = "waits for a retry"
        async with request.waiting():
            await self._world.blocked("retry", self)
            self.state = "waits for its turn"


class Rolled:
    """A rollout that sends requests, several at once, and comes to its end in one of many ways."""

    def __init__(self, world: World) -> None:
        self.time = Time()
        self.place = Place(world.slots, world.requests, self.time)
        self.asked: list[Asked] = []
        self._world = world
        self.task = asyncio.create_task(self._perform())

    @property
    def states(self) -> list[State]:
        """What its requests do."""
        return [asked.state for asked in self.asked if not asked.task.done()]

    async def _perform(self) -> None:
        try:
            for _ in range(self._world.random.randrange(1, 4)):
                await self._turn(self._world.random.randrange(1, 4))
        finally:
            self.place.end()

    async def _turn(self, n: int) -> None:
        asked = [Asked(self._world, self.place) for _ in range(n)]
        self.asked += asked
        tasks = [each.task for each in asked]
        match self._world.random.randrange(self._world.calm, 4):
            case 0:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in tasks:
                    task.cancel()
            case 1:
                await asyncio.gather(*tasks, return_exceptions=True)
            case 2:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)  # and the others go on beside it
            case 3:
                await self._world.blocked("own code", None)


class World:
    """A host's slots and rights, its rollouts, and all that blocks: each a future with what it is."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.calm = self.random.random() < 0.3  # nothing is given up, and the limit stays
        self.permits = self.random.random() < 0.5
        self.limit = self.random.randrange(1, 4)
        self.slots = Slots(self.limit, self.begin)
        self.requests = Bound(self.limit)
        self.queued = ROLLOUTS
        self.rollouts: list[Rolled] = []
        self.blocking: list[tuple[str, Asked | None, asyncio.Future[str]]] = []
        self.said: list[int] = []
        self.asked = 0

    def begin(self) -> None:
        """As many rollouts as may."""
        while self.queued and self.slots.begin():
            assert self.slots.begun <= 2 * self.limit
            self.queued -= 1
            self.rollouts.append(Rolled(self))

    async def blocked(self, what: str, by: Asked | None) -> str:
        """Wait until chance lets one go."""
        future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.blocking.append((what, by, future))
        return await future

    async def ask(self) -> Permit:
        """A permit, once chance grants it."""
        permit = Permit(self.asked, lambda event: self.said.append(event["id"]))
        self.asked += 1
        try:
            await self.blocked("permit", None)
        except BaseException:
            permit.give_back()
            raise
        return permit

    def resize(self, limit: int) -> None:
        """Another limit, as a pause, a server without room, or the engine gives it."""
        self.limit = limit
        self.requests.resize(limit)
        self.slots.resize(limit)

    def let_go(self, refused: float) -> Asked | None:
        """Let one of those that block go on. Gives the request that was refused, if one was."""
        self.blocking = [each for each in self.blocking if not each[2].done()]
        if not self.blocking:
            return None
        what, by, future = self.blocking.pop(self.random.randrange(len(self.blocking)))
        sent_away = what == "answer" and self.random.random() < refused
        future.set_result("refused" if sent_away else "")
        return by if sent_away else None

    def give_up(self) -> None:
        """Cancel a request or, more seldom, a rollout."""
        tasks = [asked.task for rolled in self.rollouts for asked in rolled.asked] * 3
        tasks += [rolled.task for rolled in self.rollouts if rolled.asked]
        live = [task for task in tasks if not task.done()]
        if live:
            self.random.choice(live).cancel()

    async def step(self) -> None:
        """Something happens, and all goes as far as it can. Now and then two things happen at once."""
        sent_away = None
        for _ in range(1 + (self.random.random() < 0.3)):
            chance = self.random.random()
            if self.calm or chance < 0.75:
                sent_away = self.let_go(0.5)
            elif chance < 0.9:
                self.give_up()
            else:
                self.resize(self.random.randrange(4))
            for _ in range(self.random.randrange(3)):
                await asyncio.sleep(0)
        before = self.requests.held
        await settled()
        self.check(max(before, self.requests.limit))
        if sent_away is not None:
            self.check_slot_given_back(sent_away)

    def check(self, most_requests: int) -> None:
        """What holds whenever all have gone as far as they can."""
        live = [rolled for rolled in self.rollouts if not rolled.task.done()]
        under_way = sum(rolled.states.count("under way") for rolled in self.rollouts)
        assert under_way <= self.requests.held <= most_requests
        assert self.slots.begun == len(live)
        assert self.slots.held == sum(rolled.place._held for rolled in live)
        assert self.slots.held <= self.limit or not self.calm
        for bound in (self.slots, self.requests):
            assert not bound._turns or bound.held >= bound.limit, "who waits could go on"
        assert not self.queued or not self.slots.free or self.slots.begun >= 2 * self.limit, "another could begin"
        for rolled in live:
            only_waits = set(rolled.states) == {"waits for its turn"}
            assert rolled.time.runs != only_waits, rolled.states
            assert rolled.place._held or "under way" not in rolled.states

    def check_slot_given_back(self, refused: Asked) -> None:
        """A rollout whose last request under way was sent away has no slot while it waits."""
        for rolled in self.rollouts:
            if refused in rolled.asked and set(rolled.states) == {"waits for a retry"} and not rolled.task.done():
                assert not rolled.place._held or not self.calm

    async def end(self) -> None:
        """All that blocks is let go: everyone comes to an end, and nothing is held."""
        self.resize(max(1, self.limit))
        for _ in range(STEPS_TO_THE_END):
            await settled()
            self.let_go(refused=0.1)
        await settled()
        waiting = [(rolled.states, rolled.task.done()) for rolled in self.rollouts if rolled.states]
        assert not waiting, waiting
        assert all(rolled.task.done() for rolled in self.rollouts)
        assert (self.queued, self.slots.held, self.slots.begun, self.requests.held) == (0, 0, 0, 0)
        assert not self.slots._turns
        assert not self.requests._turns
        assert sorted(self.said) == list(range(self.asked)), "what became of each permit is said once"
        await asyncio.gather(*self.tasks(), return_exceptions=True)

    def tasks(self) -> list[asyncio.Task[None]]:
        """All that was ever begun."""
        return [task for rolled in self.rollouts for task in (rolled.task, *(asked.task for asked in rolled.asked))]


async def settled() -> None:
    """Every task has gone as far as it can."""
    ready = asyncio.get_running_loop()._ready  # type: ignore[attr-defined]
    while True:
        await asyncio.sleep(0)
        if not ready:
            return


async def live(seed: int) -> None:
    """The life of one host."""
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


async def test_whatever_happens_to_requests_nobody_waits_for_good_and_every_clock_is_right() -> None:
    for seed in SEEDS:
        try:
            await live(seed)
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise
