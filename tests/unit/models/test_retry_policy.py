"""The retry policy alone, with models that answer as they are told: no client, no server, and no time that passes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from random import Random
from typing import Any

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import SECOND_TRY_AFTER_S, probe
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model
from pytest_osmosis.models.retry import Answered, DeniableModel, RetryPolicy, chat
from tests.clocks import LoopClock, ended, settled
from tests.raised import raised_by

REPLY = ChatReply({"role": "assistant", "content": "42"})
busy = partial(ModelError, "no room", retryable=True)
AT_ONCE = RetryPolicy(max_retries=3, first_s=0.0)
DELAY_S = 2.0**-12
"""Half a policy's first wait: the shortest that its jitter makes of it."""


class Shortest(Random):
    """Draws the lower end of each range."""

    def uniform(self, a: float, b: float) -> float:
        return a


class Scripted:
    """Answers each request with the next of its answers, and keeps the requests."""

    def __init__(self, *answers: ModelError | ChatReply) -> None:
        self._answers: Iterator[ModelError | ChatReply] = iter(answers)
        self.requests: list[ChatRequest] = []
        self.closed = False

    async def chat(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        answer = next(self._answers)
        if isinstance(answer, ModelError):
            raise answer
        return answer

    async def close(self) -> None:
        self.closed = True


async def answered(model: Model, *left_s: float | None, policy: RetryPolicy = AT_ONCE, **given: Any) -> Answered:
    """Ask a model, with these times left whenever somebody looks; the last one stays."""
    looks = iter(left_s)
    last = left_s[-1] if left_s else None
    fields = {
        "waiting": lambda delay_s: nullcontext(),
        "within": lambda seconds: nullcontext(),
        "remaining_s": lambda: next(looks, last),
        **given,
    }
    return await chat(model, ChatRequest([]), timeout_s=60.0, policy=policy, rng=Shortest(), **fields)


async def failure(model: Model, *left_s: float | None, policy: RetryPolicy = AT_ONCE) -> Any:
    return await raised_by(ModelError, answered(model, *left_s, policy=policy))


def failed_at(replica: str) -> ModelError:
    error = busy()
    error.elsewhere = replica
    return error


async def test_a_request_that_a_replica_failed_moves_and_is_no_retry_and_needs_none() -> None:
    told: list[ModelError | None] = []
    n_moves = 0

    async def moved() -> None:
        nonlocal n_moves
        n_moves += 1

    error = busy()
    model = Scripted(failed_at("a"), failed_at("b"), error, REPLY)
    found = await answered(model, on_result=told.append, moved=moved)
    assert [request.failed_at for request in model.requests] == [(), ("a",), ("a", "b"), ()]
    assert (found, n_moves, told) == (Answered(REPLY, 1), 2, [error, None])
    found = await answered(Scripted(failed_at("a"), REPLY), policy=RetryPolicy(max_retries=0))
    assert found == Answered(REPLY, 0)


@pytest.mark.parametrize("max_retries", [0, 1, 4])
async def test_after_the_last_retry_the_last_error_counts_the_retries(max_retries: int) -> None:
    model = Scripted(busy(status=500), *(busy(status=503) for _ in range(max_retries)))

    error = await failure(model, policy=RetryPolicy(max_retries, first_s=0.0))

    assert (error.status, error.retries) == (503 if max_retries else 500, max_retries)
    assert (error.boundary, len(model.requests)) == ("provider", 1 + max_retries)
    assert str(error) == (f"no room ({1 + max_retries} tries)" if max_retries else "no room")


async def test_a_request_that_takes_too_long_is_retried() -> None:
    class Silent(Scripted):
        async def chat(self, request: ChatRequest) -> ChatReply:
            reply = await super().chat(request)
            await asyncio.sleep(1e9 if len(self.requests) == 1 else 0)
            return reply

    clock, model = LoopClock(), Silent(REPLY, REPLY)
    asked = asyncio.create_task(answered(model, within=asyncio.timeout))
    for seconds, n_requests in ((0.0, 1), (59.0, 1), (1.0, 2)):
        await clock.advance(seconds)
        assert len(model.requests) == n_requests
    assert await ended(asked) == Answered(REPLY, 1)


async def test_waits_happen_inside_the_callers_context_and_requests_outside_of_it() -> None:
    seen: list[str] = []

    class Watched(Scripted):
        async def chat(self, request: ChatRequest) -> ChatReply:
            seen.append("asked")
            return await super().chat(request)

    @asynccontextmanager
    async def waiting(delay_s: float) -> AsyncIterator[None]:
        seen.append("waits")
        yield
        seen.append("waited")

    await answered(Watched(busy(), busy(), REPLY), waiting=waiting)
    assert seen == ["asked", "waits", "waited", "asked", "waits", "waited", "asked"]


async def test_a_request_is_given_no_more_than_the_time_that_is_left() -> None:
    given: list[float] = []

    def within(seconds: float) -> Any:
        given.append(seconds)
        return nullcontext()

    for left_s in (30.0, 300.0, None):
        await answered(Scripted(REPLY), left_s, within=within)
    assert given == [30.0, 60.0, 60.0]


def delays_of(error: ModelError, retries: int) -> list[float]:
    return sorted(RetryPolicy().delay_s(error, retries, Random(seed)) for seed in range(200))


def test_waits_double_to_the_cap_with_jitter_and_retry_after_is_honoured_unless_it_is_zero() -> None:
    for retries, full in [*enumerate([0.5, 1, 2, 4, 8, 16, 30, 30]), (10_000, 30)]:
        delays = delays_of(busy(), retries)
        assert 0.5 * full <= delays[0] < 0.6 * full
        assert 0.9 * full < delays[-1] <= full
    delays = delays_of(busy(retry_after_s=100.0), 0)
    assert 100 <= delays[0] < delays[-1] <= 110
    assert delays_of(busy(retry_after_s=0.0), 0)[0] >= 0.25


async def test_the_servers_wait_is_kept_between_requests() -> None:
    clock, model = LoopClock(), Scripted(busy(retry_after_s=60.0), REPLY)
    asked = asyncio.create_task(answered(model))
    for seconds, n_requests in ((0.0, 1), (59.0, 1), (1.0, 2)):
        await clock.advance(seconds)
        assert len(model.requests) == n_requests
    assert (await ended(asked)).retries == 1


@pytest.mark.parametrize(("left_s", "n_requests"), [(DELAY_S, 1), (2 * DELAY_S, 2)])
async def test_a_wait_that_takes_all_of_the_time_does_not_begin(left_s: float, n_requests: int) -> None:
    policy = RetryPolicy(max_retries=1, first_s=2 * DELAY_S)
    model = Scripted(busy(), busy())
    error = await failure(model, left_s, policy=policy)
    assert (len(model.requests), error.retries) == (n_requests, n_requests - 1)
    assert ("the next retry would be in" in str(error)) == (n_requests == 1)


async def test_no_time_at_all_is_too_little_for_a_request_or_a_retry_but_half_a_second_is_not() -> None:
    model = Scripted(busy(), busy())
    none = await failure(model, 0.0)
    assert (str(none), none.boundary, none.retryable) == ("no time is left for the request", "provider", False)
    assert model.requests == []
    assert str(await failure(model, 60.0, 0.0)) == "no room; no time is left for a retry"
    during_a_wait = await failure(model, 60.0, 60.0, -1.0)
    assert str(during_a_wait).startswith("no room; no time is left for the request")
    assert (during_a_wait.boundary, during_a_wait.retries) == ("provider", 1)
    assert await answered(Scripted(REPLY), 0.5) == Answered(REPLY, 0)
    error = await failure(Scripted(busy(status=429, retry_after_s=90.0, systemic="until_success")), 0.5)
    assert str(error) == "no room; asked to wait 90 s, 0.5 s are left"
    assert (error.status, error.retry_after_s, error.systemic) == (429, 90.0, "until_success")


def denying() -> Scripted:
    """A client whose key is wrong."""
    return Scripted(ModelError("401", systemic="always"))


async def denied(model: DeniableModel) -> None:
    with pytest.raises(ModelError, match="401"):
        await model.chat(ChatRequest([]))


async def test_a_denial_in_one_loop_holds_in_both_and_in_its_own_one_at_once() -> None:
    """The host's loop hears of it once the code that holds it ends."""
    heard: list[str] = []
    own, hosts = denying(), denying()
    host = DeniableModel(hosts, heard.append)
    loop = asyncio.get_running_loop()
    standby = DeniableModel(own, lambda error: loop.call_soon_threadsafe(host.deny, error), host)
    await denied(standby)
    await denied(standby)
    assert (len(own.requests), heard) == (1, [])
    await asyncio.sleep(0)
    await denied(host)
    assert (len(hosts.requests), heard) == (0, ["401"])


async def test_the_standby_sends_nothing_once_the_host_has_been_denied_and_else_it_answers_and_is_closed() -> None:
    own = denying()
    host = DeniableModel(denying(), lambda error: None)
    await denied(host)
    await denied(DeniableModel(own, other=host))
    assert len(own.requests) == 0
    answering = Scripted(REPLY)
    model = DeniableModel(answering)
    assert await model.chat(ChatRequest([])) is REPLY
    await model.close()
    assert answering.closed


async def test_the_probe_waits_for_a_server_that_is_starting() -> None:
    clock, model = LoopClock(), Scripted(busy(systemic="until_success"), REPLY)
    probing = asyncio.create_task(probe(model))
    await settled()
    for _ in range(2):
        assert len(model.requests) == 1
        await clock.advance(SECOND_TRY_AFTER_S / 2)
    assert await ended(probing) is None
    assert len(model.requests) == 2
