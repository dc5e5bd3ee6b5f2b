"""User code in a host: judges asked by code that holds the loop, opaque errors, and its end."""

from __future__ import annotations

import asyncio
import json
import math
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from pytest_osmosis import evaluate_rubric
from pytest_osmosis.host import main
from pytest_osmosis.host.chat import ModelGateway
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.deadline import LoopMonitor
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.main import RequestReader
from pytest_osmosis.host.protocol import HostCode, Key, Request, Setup
from pytest_osmosis.host.slots import HostLimits
from pytest_osmosis.host.user_errors import broken
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import eval_function
from pytest_osmosis.rollouts.agents import ChatContext
from tests.servers import ChatServer, never, reply, slow
from tests.unit.host.core_host import core_host

GOOD = json.dumps({"score": 1, "explanation": "right"})
LIMIT = 2


def asked() -> float:
    """Ask as code for SDK 0.2 does."""
    info: Any = {"provider": "openai", "model": "gpt-5-mini", "base_url": os.environ["JUDGE_URL"]}
    return cast(float, evaluate_rubric("Right?", "42", info))


async def awaited() -> float:
    url = os.environ["JUDGE_URL"]
    return (await evaluate_rubric(solution_str="42", rubric="Right?", model="openai/gpt-5-mini", base_url=url)).score


def blocks(solution_str: str) -> float:
    return asked()


def blocks_for_threads(solution_str: str) -> float:
    with ThreadPoolExecutor(4) as pool:
        scores: list[float] = [*pool.map(lambda context: context.run(asked), [copy_context() for _ in range(4)])]
    return min(scores)


def has_a_loop_of_its_own(solution_str: str) -> float:
    async def all_four() -> float:
        return min(await asyncio.gather(*(awaited() for _ in range(4))))

    return asyncio.run(all_four())


async def holds_the_loop(solution_str: str) -> float:
    return asked()


async def asks_in_a_thread(solution_str: str) -> float:
    return await asyncio.to_thread(asked)


@pytest.mark.parametrize(
    ("function", "calls"),
    [(blocks, 1), (blocks_for_threads, 4), (has_a_loop_of_its_own, 4), (holds_the_loop, 1), (asks_in_a_thread, 1)],
)
async def test_their_requests_are_counted_and_limited_and_none_waits_for_the_loop(
    monkeypatch: pytest.MonkeyPatch, function: Callable[[str], Any], calls: int
) -> None:
    with ChatServer(slow(0.02, reply(GOOD))) as server:
        monkeypatch.setenv("JUDGE_URL", server.base_url)
        functions = (eval_function("judged", function),)
        async with core_host(server, limit=LIMIT, functions=functions) as host:
            host.score(0, "judged")
            event = await host.heard("score", 0)
    assert (event["scores"], event["errors"]) == ({"judged": 1.0}, {})
    assert [(use["model"], use["calls"]) for use in event["judges"]] == [("openai/gpt-5-mini", calls)]
    assert server.max_in_flight <= LIMIT


class Opaque(Exception):
    """An error that raises whatever is asked of it, also its class."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class OpaqueTwice(Exception):
    """An error that raises such errors."""

    def __getattribute__(self, name: str) -> Any:
        raise Opaque


@pytest.mark.parametrize("error", [Opaque, OpaqueTwice])
async def test_an_error_that_nobody_can_look_at_is_the_error_of_its_run(error: type[Exception]) -> None:
    async def rollout(ctx: ChatContext) -> None:
        raise error

    async def score(solution_str: str) -> float:
        raise error

    function = eval_function("rewards:score", score)
    async with core_host(reply("42"), rollout, functions=(function,)) as host:
        host.run(0)
        host.score(1, "rewards:score")
        rolled, scored = await host.rollout(0), await host.heard("score", 1)

    assert (rolled["boundary"], rolled["error"].partition(":")[0]) == ("agent", error.__name__)
    assert scored["errors"]["rewards:score"]["message"].partition(":")[0] == error.__name__


async def test_an_invalid_score_is_told_without_a_traceback_and_harms_no_other_function() -> None:
    def invalid(solution_str: str) -> Any:
        return None

    def breaks(solution_str: str) -> float:
        return 1 / 0

    def scalar(solution_str: str) -> Any:
        return SimpleNamespace(shape=(), item=lambda: 0.5)

    functions = tuple(eval_function(each.__name__, each) for each in (invalid, breaks, scalar))
    async with core_host(never(), functions=functions) as host:
        host.score(0, "invalid", "breaks", "scalar")
        await host.heard("score", 0, scores={"scalar": 0.5})
        first, second, _ = (event["errors"] for event in host.events if event["ev"] == "score")
    assert first == {"invalid": {"message": "must return a number, got NoneType: None", "details": ""}}
    assert second["breaks"]["message"] == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in second["breaks"]["details"]


async def test_a_function_gets_an_unusual_conversation_as_plain_json() -> None:
    unusual = {"role": "assistant", "content": "x", "share": math.nan, "note": Path("a note"), 1: ("a", {"b"})}
    seen: list[Any] = []

    async def rollout(ctx: ChatContext) -> Any:
        return [unusual]

    async def score(messages: Any) -> float:
        seen.extend(messages)
        return 1.0

    async with core_host(never(), rollout, functions=(eval_function("score", score),), scores_at_once=True) as host:
        host.run(0)
        await host.heard("score", 0)
    assert seen == [{"role": "assistant", "content": "x", "share": "nan", "note": "a note", "1": ["a", "{'b'}"]}]


def test_a_bug_that_follows_from_such_an_error_is_reported() -> None:
    try:
        raise Opaque
    except Opaque:
        try:
            raise ValueError("a bug")
        except ValueError as bug:
            event = broken(Key(RunId(0, 0), 1), bug)

    assert event["boundary"] == "host"
    assert "ValueError" in event["error"]


async def test_an_environment_is_released_though_a_client_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    released = []

    class Environment:
        is_grouped = False

        async def close(self) -> None:
            released.append(self)

    async def breaks(self: ModelGateway) -> None:
        raise OSError("its connections are those of another loop")

    monkeypatch.setattr(ModelGateway, "close", breaks)
    target = {"model": "m", "provider": "p", "client": "light", "base_url": None, "max_retries": 0}
    setup = Setup(HostCode("roll", ".", (), target))
    code = UserCode(None, (), None, {}, None, environment=cast(Any, Environment()))
    endpoint, limits = HostEndpoint(setup.code, {}), HostLimits(1, lambda: None)
    core = HostCore(setup, code, {}, endpoint, limits, LoopMonitor(lambda key, stack: None), Mock())
    with pytest.raises(OSError, match="another loop"):
        await core.close()
    assert released


def test_a_host_whose_reader_breaks_ends_as_it_would_hear_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(requests: list[Request]) -> None:
        if requests:
            raise TypeError("user code replaced a builtin")

    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(main, "end_process_group", ended.set)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe, os.fdopen(write, "wb") as engine:
        reader = RequestReader(pipe)
        reader.start()
        (thread,) = (each for each in threading.enumerate() if each.name == "osmosis-reader")
        reader.deliver_to(broken)
        engine.write(b'{"op": "close"}\n')
        engine.flush()

        thread.join(60.0)
    assert ended.is_set()
