"""Rehearsed outages: the same requests fail for the same seed, and clients see what servers send."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientResponse
from aiohttp.test_utils import TestClient, TestServer

from pytest_osmosis.demo import Disturbances, Fates, Latency, RateLimiter, RequestRate, application

PATHS = pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages"])
BODIES = [f"body {number}".encode() for number in range(1000)]


def failing(disturbances: Disturbances, bodies: list[bytes]) -> set[bytes]:
    fates = Fates(disturbances)
    return {body for body in bodies if fates.of(body).fails}


def test_about_the_share_of_requests_fails_and_the_seed_decides_which() -> None:
    third = Disturbances(error_rate=0.3, seed=1)

    failed = failing(third, BODIES)

    assert 250 < len(failed) < 350
    assert failing(third, BODIES[::-1]) == failed
    assert failing(Disturbances(error_rate=0.3, seed=2), BODIES) != failed
    assert failing(Disturbances(error_rate=0.6, seed=1), BODIES) > failed
    assert failing(Disturbances(error_rate=0.0), BODIES) == set()
    assert failing(Disturbances(error_rate=1.0), BODIES) == set(BODIES)


def test_a_request_that_comes_again_may_fare_better() -> None:
    fates = Fates(Disturbances(error_rate=0.5))

    again = [fates.of(b"same") for _ in range(100)]

    assert [fate.earlier for fate in again] == list(range(100))
    assert {fate.fails for fate in again} == {True, False}


def test_latencies_fill_their_range() -> None:
    fates = Fates(Disturbances(Latency(0.2, 1.0)))

    found = [fates.of(body).latency_s for body in BODIES]

    assert 0.2 <= min(found) < 0.21
    assert 0.99 < max(found) < 1.0
    assert Fates(Disturbances(Latency(0.2, 0.2))).of(b"x").latency_s == 0.2


def test_a_limit_admits_its_requests_in_any_span() -> None:
    clock = [100.0]
    limiter = RateLimiter(RequestRate(2, 10.0), lambda: clock[0])
    waits = []
    for now in (100.0, 106.0, 107.0, 110.0, 110.5, 116.0):
        clock[0] = now
        waits.append(limiter.wait_s())

    assert waits == [0.0, 0.0, 3.0, 0.0, 5.5, 0.0]


# -- over loopback -------------------------------------------------------------------------------------------


@asynccontextmanager
async def served(disturbances: Disturbances) -> AsyncIterator[TestClient[Any, Any]]:
    async with TestClient(TestServer(application(disturbances))) as client:
        yield client


async def asked(client: TestClient[Any, Any], path: str = "/v1/chat/completions") -> ClientResponse:
    message = {"role": "user", "content": "1 + 1"}
    return await client.post(path, json={"model": "demo/arithmetic", "max_tokens": 99, "messages": [message]})


@PATHS
async def test_a_failure_says_why(path: str) -> None:
    async with served(Disturbances(error_rate=1.0, error_status=503)) as client:
        answer = await asked(client, path)
        assert answer.status == 503
        assert "the demo server fails this request (--error-rate=1)" in await answer.text()


@PATHS
async def test_a_request_that_comes_too_soon_is_told_how_long_to_wait(path: str) -> None:
    async with served(Disturbances(rate_limit=RequestRate(1, 600.0))) as client:
        first, second = await asked(client, path), await asked(client, path)

    assert (first.status, second.status) == (200, 429)
    assert 500 < int(second.headers["retry-after"]) <= 600
    assert 500_000 < int(second.headers["retry-after-ms"]) <= 600_000


async def test_stats_count_failures_apart_from_requests_that_came_too_soon() -> None:
    async with served(Disturbances(error_rate=1.0, rate_limit=RequestRate(1, 600.0))) as client:
        for _ in range(3):
            assert (await asked(client)).status >= 400
        counts = await (await client.get("/stats")).json()

    tokens = {"input_tokens": 0, "output_tokens": 0}
    assert counts == {"requests": 3, "in_flight": 0, "max_in_flight": 1, "failed": 1, "limited": 2, **tokens}
