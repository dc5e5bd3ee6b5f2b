"""User code in a host: judges asked by code that holds the loop, opaque errors, and reasoning that is not sent back."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, cast

import aiohttp
import pytest

from pytest_osmosis import evaluate_rubric
from pytest_osmosis.host.protocol import Key
from pytest_osmosis.host.user_errors import broken
from pytest_osmosis.models.base import ChatReply
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.rewards.graders import eval_function
from pytest_osmosis.rollouts.context import ChatContext
from tests.servers import ChatServer, data, reply, responses_reply, slow
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


async def holds_the_loop_for_threads(solution_str: str) -> float:
    return blocks_for_threads(solution_str)


async def asks_in_a_thread(solution_str: str) -> float:
    return await asyncio.to_thread(asked)


@pytest.mark.parametrize(
    ("function", "calls"),
    [
        (blocks, 1),
        (blocks_for_threads, 4),
        (has_a_loop_of_its_own, 4),
        (holds_the_loop, 1),
        (holds_the_loop_for_threads, 4),
        (asks_in_a_thread, 1),
    ],
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


# -- errors whose own code gets in the way -------------------------------------------------------------------


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


# -- reasoning that is not sent back -------------------------------------------------------------------------


THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "add", "arguments": "{}"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Add.", "annotations": []}],
}
NEXT = {"role": "user", "content": "Go on."}
Messages = list[dict[str, Any]]
Next = Callable[[ChatContext, ChatReply], Messages]


def remade(ctx: ChatContext, reply: ChatReply) -> Messages:
    return [*ctx.prompt, {"role": "assistant", "content": reply.content}, NEXT]


def called_again(ctx: ChatContext, reply: ChatReply) -> Messages:
    said = {"role": "assistant", "content": None, "tool_calls": reply.tool_calls}
    return [*ctx.prompt, said, {"role": "tool", "tool_call_id": "call_1", "content": "3"}]


async def n_lost(agent: Callable[[ChatContext], Awaitable[object]], *items: Any) -> int:
    """The number of times that the engine is told, if each answer has these items."""
    async with core_host(data(responses_reply(*items)), agent, model={"api_client_type": "openai_responses"}) as host:
        host.run(0)
        assert "error" not in await host.rollout(0)
        return sum(event["ev"] == "reasoning_lost" for event in host.events)


@pytest.mark.parametrize(
    ("items", "following", "n"),
    [
        ([THOUGHT, SAID], lambda ctx, reply: [*ctx.prompt, reply.message, NEXT], 0),
        ([THOUGHT, SAID], remade, 1),
        ([THOUGHT, SAID], lambda ctx, reply: [*ctx.prompt, NEXT], 1),
        ([THOUGHT, SAID], lambda ctx, reply: ctx.prompt, 0),
        ([THOUGHT, SAID], lambda ctx, reply: [NEXT, NEXT], 0),
        ([{**SAID, "phase": "commentary"}], remade, 0),
        ([{**THOUGHT, "encrypted_content": None}, SAID], remade, 0),
        ([THOUGHT, CALL], called_again, 0),
        ([THOUGHT, {**CALL, "call_id": "other"}], lambda ctx, reply: [*ctx.prompt, NEXT], 1),
    ],
    ids=["kept", "remade", "dropped", "repeated", "another", "none", "not given", "found by its call", "call dropped"],
)
async def test_a_request_that_goes_on_without_the_reasoning_is_told(items: list[Any], following: Next, n: int) -> None:
    async def agent(ctx: ChatContext) -> None:
        reply = await ctx.chat(ctx.prompt)
        await ctx.chat(following(ctx, reply))

    assert await n_lost(agent, *items) == n


async def test_it_is_told_once_for_each_answer() -> None:
    async def agent(ctx: ChatContext) -> None:
        messages = list(ctx.prompt)
        for _ in range(3):
            reply = await ctx.chat(messages)
            messages += [{"role": "assistant", "content": reply.content}, NEXT]

    assert await n_lost(agent, THOUGHT, SAID) == 2


async def posted(ctx: ChatContext, path: str, **body: Any) -> Any:
    """Return the answer of the endpoint."""
    headers = {"Authorization": f"Bearer {ctx.api_key}"}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{ctx.base_url}/{path}", json=body) as got,
    ):
        return await got.json()


async def test_a_client_of_responses_sends_it_back_or_not() -> None:
    for kept, n in ((True, 0), (False, 1)):

        async def agent(ctx: ChatContext, kept: bool = kept) -> None:
            first = (await posted(ctx, "responses", input=ctx.prompt))["output"]
            await posted(ctx, "responses", input=[*ctx.prompt, *first[0 if kept else 1 :], NEXT])

        assert await n_lost(agent, THOUGHT, SAID) == n


async def test_a_client_of_chat_completions_cannot_send_it_back() -> None:
    async def agent(ctx: ChatContext) -> None:
        first = (await posted(ctx, "chat/completions", messages=ctx.prompt))["choices"][0]["message"]
        await posted(ctx, "chat/completions", messages=[*ctx.prompt, first, NEXT])

    assert await n_lost(agent, THOUGHT, SAID) == 1
