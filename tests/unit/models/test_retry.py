"""The retry policy and the probe, with the real client against a real server: how many requests, and how each ends."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import SECOND_TRY_AFTER_S, probe
from pytest_osmosis.models.base import ChatRequest, Model
from pytest_osmosis.models.retry import Answered, RetryPolicy, chat
from tests import servers
from tests.clocks import LoopClock, ended, settled
from tests.servers import Behaviour, ChatServer
from tests.unit.models.talking import CHAT_CLIENTS, CLIENT, CLIENTS, model_at
from tests.unit.models.test_retry_policy import REPLY, Scripted

TIMEOUT_S = 60.0
POLICY = RetryPolicy()
GOOD = servers.reply("42")


@dataclass
class Waits:
    """Records each wait for a retry, and whether one is going on. Its time passes at once, unless it is `held`."""

    clock: LoopClock = field(default_factory=LoopClock)
    held: bool = False
    delays: list[float] = field(default_factory=list)
    waiting: bool = False

    @asynccontextmanager
    async def __call__(self, delay_s: float) -> AsyncIterator[None]:
        self.delays.append(delay_s)
        self.waiting = True
        passing = None if self.held else asyncio.create_task(self.clock.advance(delay_s))
        try:
            yield
        finally:
            self.waiting = False
        if passing is not None:
            await passing


async def has_asked(server: ChatServer, n: int = 1) -> None:
    await asyncio.to_thread(server.wait_for, lambda server: len(server.requests) == n)


pytestmark = pytest.mark.parametrize("client", CLIENTS, indirect=True)


def model_of(base_url: str) -> AbstractAsyncContextManager[Model]:
    return model_at(base_url, path="m")


async def answered(server: ChatServer, waits: Waits | None = None, *, policy: RetryPolicy = POLICY) -> Answered:
    waits = waits or Waits()
    async with model_of(server.base_url) as model:
        return await chat(
            model,
            ChatRequest(messages=[{"role": "user", "content": "hi"}]),
            timeout_s=TIMEOUT_S,
            policy=policy,
            remaining_s=lambda: None,
            waiting=waits,
            rng=Random(0),
        )


async def failure(server: ChatServer, waits: Waits | None = None, **options: Any) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await answered(server, waits, **options)
    return caught.value


# -- how often -----------------------------------------------------------------------------------------------


async def test_a_request_that_times_out_is_retried() -> None:
    waits = Waits()
    with ChatServer(servers.never(), GOOD) as server:
        asked = asyncio.create_task(answered(server, waits))
        await has_asked(server)
        await waits.clock.advance(TIMEOUT_S)
        found = await ended(asked)
    assert (found.reply.content, found.retries, len(server.requests)) == ("42", 1, 2)


# -- how long ------------------------------------------------------------------------------------------------


def delays_of(error: ModelError, retries: int) -> list[float]:
    return sorted(RetryPolicy().delay_s(error, retries, Random(seed)) for seed in range(200))


def test_waits_double_to_the_cap_with_jitter_and_retry_after_is_honoured_unless_it_is_zero() -> None:
    for retries, full in [*enumerate([0.5, 1, 2, 4, 8, 16, 30, 30]), (10_000, 30)]:
        delays = delays_of(ModelError("x"), retries)
        assert 0.5 * full <= delays[0] < 0.6 * full
        assert 0.9 * full < delays[-1] <= full
    delays = delays_of(ModelError("x", retry_after_s=100.0), 0)
    assert 100 <= delays[0] < delays[-1] <= 110
    assert delays_of(ModelError("x", retry_after_s=0.0), 0)[0] >= 0.25


async def test_the_servers_wait_is_kept_between_requests() -> None:
    waits = Waits(held=True)
    with ChatServer(servers.status(429, retry_after="60"), GOOD) as server:
        asked = asyncio.create_task(answered(server, waits))
        await asyncio.to_thread(server.wait_for, lambda _server: waits.waiting)
        [delay_s] = waits.delays
        assert 60 <= delay_s <= 66
        await waits.clock.advance(delay_s - 1)
        assert waits.waiting
        await waits.clock.advance(1)
        assert not waits.waiting
        assert (await ended(asked)).retries == 1


# -- deadlines -----------------------------------------------------------------------------------------------


async def test_cancelling_ends_an_open_request() -> None:
    with ChatServer(servers.never()) as server:
        task = asyncio.create_task(answered(server))
        await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await ended(task)
        await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 0)
    assert len(server.requests) == 1


# -- the probe -----------------------------------------------------------------------------------------------


async def probed(server: ChatServer) -> ModelError | None:
    async with model_of(server.base_url) as model:
        return await probe(model, timeout_s=TIMEOUT_S)


async def test_the_probe_is_one_tiny_request() -> None:
    with ChatServer(GOOD) as server:
        assert await probed(server) is None
    assert server.bodies == [{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}]


async def test_the_probe_bounds_its_answer_by_the_key_that_the_server_takes() -> None:
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with ChatServer(servers.status(400, {"error": {"message": message}}), GOOD) as server:
        assert await probed(server) is None
    if CLIENT.name in CHAT_CLIENTS:
        bounds = [{key: body[key] for key in body if "tokens" in key} for body in server.bodies]
        assert bounds == [{"max_tokens": 16}, {"max_completion_tokens": 16}]


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        (servers.status(401), ("provider", "always")),
        (servers.status(429, servers.QUOTA), ("provider", "always")),
        (servers.status(404), ("provider", "until_success")),
        (servers.status(400), ("model", "no")),
        (servers.data({"choices": []}), ("model", "no")),
        (servers.status(429, retry_after="60"), None),
        (servers.cut_connection(), None),
    ],
    ids=["401", "quota", "404", "400", "no-choices", "429", "cut"],
)
async def test_the_probe_reports_what_every_request_may_meet_and_ignores_what_passes(
    behaviour: Behaviour, found: tuple[str, str] | None
) -> None:
    with ChatServer(behaviour) as server:
        error = await probed(server)
    assert (error and (error.boundary, error.systemic)) == found
    assert len(server.requests) == 1


async def test_the_probe_reports_an_unreachable_server(unused_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_osmosis.models.SECOND_TRY_AFTER_S", 0.0)
    async with model_of(f"http://127.0.0.1:{unused_port}/v1") as model:
        error = await probe(model)
    assert error is not None
    assert (error.systemic, error.retryable) == ("until_success", True)


async def test_the_probe_waits_for_a_server_that_is_starting() -> None:
    clock, model = LoopClock(), Scripted(ModelError("cannot reach it", retryable=True, systemic="until_success"), REPLY)
    probing = asyncio.create_task(probe(model))
    await settled()
    assert len(model.requests) == 1
    await clock.advance(SECOND_TRY_AFTER_S / 2)
    assert len(model.requests) == 1
    await clock.advance(SECOND_TRY_AFTER_S / 2)
    assert await ended(probing) is None
    assert len(model.requests) == 2


async def test_an_error_does_not_keep_the_answer_that_it_is_about() -> None:
    with ChatServer(servers.body("x" * 10**6)) as server:
        error = await failure(server, policy=RetryPolicy(max_retries=0))
    assert error.__context__ is None
    kept = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    assert not [value for value in kept if isinstance(value, (str, bytes, bytearray)) and len(value) > 10_000]
