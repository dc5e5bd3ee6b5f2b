"""A model with several real servers: where requests go, what a dead server costs, and what is counted."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, nullcontext
from random import Random
from typing import Any

import pytest
from aiohttp import web

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.evals.eval_models import resolve_model
from pytest_osmosis.models import probe
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.replicas import USES, ReplicatedModel, ReplicaUse, place_of
from pytest_osmosis.models.retry import RetryPolicy, chat
from tests import servers
from tests.clocks import LoopClock, ended
from tests.raised import raised_by
from tests.servers import ChatServer, Exchange
from tests.unit.models.talking import created

CLOSED = "http://127.0.0.1:9/v1"
"""An address where no server listens."""


@contextmanager
def counted() -> Iterator[dict[str, ReplicaUse]]:
    uses: dict[str, ReplicaUse] = {}
    token = USES.set(uses)
    try:
        yield uses
    finally:
        USES.reset(token)


@asynccontextmanager
async def replicated(
    *urls: str, now: Callable[[], float] | None = None, **table: Any
) -> AsyncIterator[ReplicatedModel]:
    entries = tuple(RegisteredEndpoint("m", "model", url) for url in urls)
    target = resolve_model("m", ModelTable(**table), {}, where="x", registry=Registry("r.toml", {"m": entries}))
    async with created(target, max_in_flight=16) as model:
        assert isinstance(model, ReplicatedModel)
        model._now = now or model._now
        yield model


async def ask(model: ReplicatedModel, run: str = "row0-run0", retries: int = 4) -> ChatReply:
    """The reply to one request, with retries that do not wait."""
    answered = await chat(
        model,
        ChatRequest([{"role": "user", "content": "2 + 2"}], run=run),
        timeout_s=60.0,
        policy=RetryPolicy(max_retries=retries, first_s=0.0, cap_s=0.0),
        remaining_s=lambda: None,
        waiting=lambda delay_s: nullcontext(),
        rng=Random(0),
    )
    return answered.reply


def counts(uses: dict[str, ReplicaUse], urls: Sequence[str]) -> list[tuple[int, int]]:
    return [(uses[url].requests, uses[url].errors) if url in uses else (0, 0) for url in urls]


async def test_a_request_goes_to_the_replica_with_the_fewest_in_flight() -> None:
    with ChatServer(servers.held(servers.reply("slow"))) as slow, ChatServer(servers.reply("fast")) as fast:
        async with replicated(slow.base_url, fast.base_url) as model:
            first = asyncio.create_task(ask(model, "row0-run0"))
            await asyncio.to_thread(slow.wait_for, lambda server: len(server.requests) == 1)
            for run in range(1, 4):
                assert (await ask(model, f"row{run}-run0")).content == "fast"
            slow.release()
            assert (await first).content == "slow"


async def test_a_replica_that_cannot_be_reached_is_left_out_at_once_and_asked_again_later() -> None:
    time = [0.0]
    with ChatServer(servers.reply("b")) as alive, counted() as uses:
        async with replicated(CLOSED, alive.base_url, now=lambda: time[0]) as model:
            for _ in range(4):
                await ask(model, retries=0)
            assert counts(uses, [CLOSED, alive.base_url]) == [(1, 1), (4, 0)]
            time[0] = 6.0
            await ask(model, retries=0)
            await ask(model, retries=0)
            assert counts(uses, [CLOSED, alive.base_url]) == [(2, 2), (6, 0)]
            assert len(uses[CLOSED].left_out) == 1, "it was not back in between"


async def test_a_replica_that_fails_loses_nothing_and_is_back_once_it_answers_again() -> None:
    time, is_ill = [0.0], [True]

    async def behave(exchange: Exchange) -> web.StreamResponse:
        return await (servers.status(500) if is_ill[0] else servers.reply("a"))(exchange)

    with ChatServer(behave) as ill, ChatServer(servers.reply("b")) as alive, counted() as uses:
        async with replicated(ill.base_url, alive.base_url, now=lambda: time[0]) as model:
            replies = await asyncio.gather(*(ask(model, retries=0) for _ in range(12)))
            assert {reply.content for reply in replies} == {"b"}
            n_failed = len(ill.requests)
            assert {(await ask(model, retries=0)).content for _ in range(4)} == {"b"}
            assert len(ill.requests) == n_failed, "failures in a row leave it out"
            time[0], is_ill[0] = 6.0, False
            assert (await ask(model, retries=0)).content == "a"
            assert {(await ask(model, retries=0)).content for _ in range(20)} == {"a", "b"}
    use = uses[ill.base_url]
    assert (use.errors, len(use.left_out), len(use.back)) == (n_failed, 1, 1)
    assert "500" in use.left_out[0]["error"]


async def test_if_every_replica_is_left_out_the_request_fails_as_with_one_server() -> None:
    async with replicated(CLOSED, "http://127.0.0.1:11/v1") as model:
        error = await raised_by(ModelError, ask(model, retries=2))
    assert (error.systemic, error.elsewhere) == ("until_success", None)
    assert "(3 tries)" in str(error)


async def test_a_refused_key_denies_one_replica_and_an_address_that_does_not_fit_is_mended_in_the_registry() -> None:
    with ChatServer(servers.status(401)) as refusing, ChatServer(servers.reply("b")) as alive:
        async with replicated(refusing.base_url, alive.base_url) as model:
            assert [(await ask(model, retries=0)).content for _ in range(3)] == ["b"] * 3
    assert len(refusing.requests) == 1
    with ChatServer(servers.status(307, Location="http://127.0.0.1:11/v1")) as moved:
        async with replicated(moved.base_url, moved.base_url) as model:
            advice = re.escape("set [[endpoint]] url (or [model] base_url) to the model's")
            with pytest.raises(ModelError, match=advice):
                await ask(model, retries=0)


async def test_an_error_of_the_request_itself_goes_nowhere_else() -> None:
    with ChatServer(servers.status(400)) as first, ChatServer(servers.status(400)) as second:
        async with replicated(first.base_url, second.base_url) as model:
            assert (await raised_by(ModelError, ask(model))).boundary == "model"
    assert len(first.requests) + len(second.requests) == 1


async def test_a_busy_replica_is_spared_for_as_long_as_it_asks() -> None:
    refusal = servers.status(429, retry_after="30")
    with ChatServer(refusal) as busy, ChatServer(servers.reply("b")) as alive, counted() as uses:
        async with replicated(busy.base_url, alive.base_url) as model:
            assert [(await ask(model, retries=0)).content for _ in range(6)] == ["b"] * 6
    assert len(busy.requests) == 1
    assert uses[busy.base_url].left_out == []


async def test_a_request_that_times_out_counts_against_its_replica() -> None:
    clock = LoopClock()
    with ChatServer(servers.never()) as hung, ChatServer(servers.reply("b")) as alive, counted() as uses:
        async with replicated(hung.base_url, alive.base_url, now=clock.now, timeout_s=60.0) as model:
            asked = asyncio.create_task(ask(model))
            await asyncio.to_thread(hung.wait_for, lambda server: len(server.requests) == 1)
            await clock.advance(60)
            assert (await ended(asked)).content == "b"
    assert counts(uses, [hung.base_url, alive.base_url]) == [(1, 1), (1, 0)]


@pytest.mark.parametrize("sticky", ["row", "run"])
async def test_what_is_sticky_stays_with_one_replica_while_it_answers(sticky: str) -> None:
    runs = [f"row{row}-run{run}" for row in range(12) for run in range(4)]
    with ChatServer(servers.reply("a")) as a, ChatServer(servers.reply("b")) as b:
        async with replicated(a.base_url, b.base_url, sticky=sticky) as model:
            by_run = {run: {(await ask(model, run)).content for _ in range(2)} for run in runs}
        async with replicated(CLOSED, b.base_url, sticky=sticky) as model:
            assert {(await ask(model, run)).content for run in runs} == {"b"}
    assert all(len(answers) == 1 for answers in by_run.values())
    assert len(a.requests) > 24
    by_row = [set().union(*(by_run[f"row{row}-run{run}"] for run in range(4))) for row in range(12)]
    assert all(len(answers) == 1 for answers in by_row) == (sticky == "row")


def test_rows_are_spread_evenly() -> None:
    for rows in (range(30), range(0, 300, 10), range(7, 97, 3)):
        halves = Counter(int((place_of(f"row{row}-run0", "row") or 0.0) * 2) for row in rows)
        assert abs(halves[0] - halves[1]) <= 4


async def test_the_probe_asks_every_replica() -> None:
    with ChatServer(servers.reply("a")) as a, ChatServer(servers.status(401)) as refusing:
        async with replicated(a.base_url, refusing.base_url) as model:
            error = await probe(model)
        assert error is not None
        assert error.status == 401
        assert refusing.base_url in str(error)
        with counted() as uses:
            async with replicated(CLOSED, a.base_url) as model:
                assert await probe(model) is None
                await ask(model)
        assert [len(uses[url].left_out) for url in (CLOSED, a.base_url)] == [1, 0]
        assert uses[CLOSED].requests == 0
        async with replicated(CLOSED, "http://127.0.0.1:11/v1") as model:
            error = await probe(model)
        assert error is not None
        assert str(error).count("refused the connection") == 2
