"""Bad weather for evals: a server that refuses, fails and cuts connections, an agent to meet it, and its counts."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from aiohttp import web

from tests.servers import Behaviour, Exchange, cut_body, cut_connection, half_json, reply, status

AGENT = """
import asyncio, os, sys

async def rollout(ctx):
    reply = await ctx.chat([{"role": "user", "content": f"run {ctx.row_index} {ctx.run_index}"}])
    return [*ctx.prompt, reply.message]
"""
FAULTS: list[Behaviour] = [
    status(429, retry_after="0.05"),
    status(500),
    status(503),
    cut_connection(),
    cut_body(),
    half_json(),
]


class Weather:
    """A server that answers a share of requests with a fault, drawn by a seed. It counts requests by run, and answers.

    Requests of rows from `held_from` on wait until it is raised.
    """

    def __init__(self, seed: int, *, faults: float = 1 / 3, held_from: float = math.inf) -> None:
        self._random = random.Random(seed)
        self._faults = faults
        self.held_from = held_from
        self.asked: Counter[tuple[int, int]] = Counter()
        self.answered: Counter[tuple[int, int]] = Counter()
        self.in_flight = self.most_in_flight = 0

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        """Answer one request. The requests of a killed host end with its connections."""
        row, run = map(int, exchange.seen.body["messages"][-1]["content"].split()[1:])
        self.asked[row, run] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.02)
            while row >= self.held_from:  # noqa: ASYNC110 (the test raises it in another thread)
                await asyncio.sleep(0.02)
        finally:
            self.in_flight -= 1
        if self._random.random() < self._faults:
            return await self._random.choice(FAULTS)(exchange)
        self.answered[row, run] += 1
        return await reply("42")(exchange)


def kill_choices() -> random.Random:
    """Return the choices of a test that kills at random. A failure prints the seed with which it makes them again."""
    seed = int(os.environ.get("OSMOSIS_KILL_SEED", random.SystemRandom().randrange(10**6)))
    print(f"OSMOSIS_KILL_SEED={seed}")
    return random.Random(seed)


def starts(journal: Iterable[Mapping[str, Any]]) -> Counter[tuple[int, int]]:
    """Return how many times each run began."""
    return Counter((event["row"], event["run"]) for event in journal if event["ev"] == "start")


def check_requests(journal: Iterable[Mapping[str, Any]], weather: Weather, *, batch_size: int, retries: int) -> None:
    """Check that no request came more often than its attempts allow, and none twice that was answered in time."""
    events = list(journal)
    begun = starts(events)
    rolled = Counter((event["row"], event["run"], event["attempt"]) for event in events if event["ev"] == "rollout")
    assert set(rolled.values()) <= {1}, "an attempt was rolled out twice"
    assert max(begun.values(), default=0) <= 2
    for key, times in weather.asked.items():
        assert times <= begun[key] * (1 + retries), f"{key} was asked for {times} times in {begun[key]} attempts"
    for key, times in weather.answered.items():
        assert times <= begun[key], f"{key} was answered {times} times in {begun[key]} attempts"
    assert weather.most_in_flight <= batch_size
