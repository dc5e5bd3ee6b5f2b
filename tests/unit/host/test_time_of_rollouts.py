"""The time that counts for the deadlines of a rollout and its scoring: their own, not what they wait for others."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, cast

import pytest
from aiohttp import web

from pytest_osmosis import evaluate_rubric
from pytest_osmosis.errors import BoundError
from pytest_osmosis.host.core import STUCK_AFTER
from pytest_osmosis.host.deadline import CANCEL_AGAIN_S
from pytest_osmosis.host.protocol import RolloutBounds
from pytest_osmosis.host.slots import grant
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.rewards.graders import eval_function
from pytest_osmosis.rollouts.agents import ChatContext, ThreadedFunctionAgent
from tests.clocks import settled
from tests.servers import ChatServer, Exchange, by_row, never, reply, status
from tests.unit.host.core_host import after, core_host, rubric_judge

TIME_S = 50.0


async def test_waits_in_the_queue_and_for_a_slot_do_not_count() -> None:
    """There is one slot. Row 0 must retry, and then waits for row 1, which has the slot meanwhile."""
    gates = [threading.Event() for _ in range(3)]
    answers = {row: [after(gate, reply("42"))] for row, gate in enumerate(gates)}
    answers[0].insert(0, status(429, retry_after="1"))
    async with core_host(by_row(answers, never()), agent_timeout_s=TIME_S) as host:
        host.run(0, 1, 2)
        await host.heard("retry", 0, waits=True)
        await host.heard("start", 1)
        await host.asked(2)
        await host.clock.advance(2.0)  # row 0 may be sent again
        for row, n_asked in ((1, 3), (0, 4), (2, 4)):
            await host.clock.advance(TIME_S - 10)
            gates[row].set()
            assert "boundary" not in await host.rollout(row)
            await host.asked(n_asked)
    assert host.server.max_in_flight == 1


async def test_a_deadline_that_passes_while_a_request_is_open_is_the_providers_failure() -> None:
    async with core_host(never(), agent_timeout_s=TIME_S) as host:
        host.run(0)
        await host.asked(1)
        await host.clock.advance(TIME_S)
        event = await host.rollout(0)
    assert (event["boundary"], event["retries"]) == ("provider", 0)
    assert event["error"] == "no answer within the 50 s of agent_workflow_timeout_s (0 retries)"


@pytest.mark.parametrize("client", ["light", "openai"])
async def test_an_answer_that_arrives_while_another_rollout_holds_the_loop_is_not_requested_again(client: str) -> None:
    gate = threading.Event()
    async with core_host(
        after(gate, reply("42")), agent_timeout_s=TIME_S, model={"timeout_s": 10.0, "client": client}
    ) as host:
        host.run(0)
        await host.asked(1)
        host.stall(100.0)
        await host.clock.advance(9.0)
        gate.set()
        event = await host.rollout(0)
    assert ("boundary" in event, event["retries"], len(host.server.requests)) == (False, 0, 1)


async def test_a_request_that_a_bound_refuses_once_it_has_its_permit_gives_it_back() -> None:
    """Both ask before one is answered; one request is in flight at a time, so the other one waits for the answer."""

    async def agent(ctx: ChatContext) -> None:
        await asyncio.gather(ctx.chat(ctx.prompt), ctx.chat(ctx.prompt))

    bounds = RolloutBounds(tokens=1)
    async with core_host(reply("42"), agent, agent_timeout_s=TIME_S, permits=True, bounds=bounds) as host:
        host.run(0)
        first = await host.heard("ask", 0)
        grant([first["id"]])
        await host.asked(1)
        while len(asks := [event for event in host.events if event["ev"] == "ask"]) < 2:
            await settled()
        grant([asks[1]["id"]])
        event = await host.rollout(0)
    assert (event["boundary"], len(host.server.requests)) == ("agent", 1)
    became = {event["id"]: event["ev"] for event in host.events if event["ev"] in ("answered", "unused")}
    assert became == {asks[0]["id"]: "answered", asks[1]["id"]: "unused"}


async def test_an_agent_that_passes_over_every_refusal_holds_up_no_other() -> None:
    """Row 0 asks on and on until its deadline. Row 1 shares its event loop, and ends meanwhile."""

    async def agent(ctx: ChatContext) -> None:
        while ctx.row_index == 0:
            with contextlib.suppress(BoundError):
                await ctx.chat(ctx.prompt)
        await ctx.chat(ctx.prompt)

    async with core_host(reply("42"), agent, 2, agent_timeout_s=TIME_S, bounds=RolloutBounds(max_turns=2)) as host:
        host.run(0)
        await host.asked(2)
        await host.clock.advance(1.0)
        host.run(1)
        assert "boundary" not in await host.rollout(1)
        assert not [event for event in host.events if event["ev"] == "rollout" and event["row"] == 0]
        for _ in range(5):
            await host.clock.advance(TIME_S / 5)
        event = await host.rollout(0)
    assert (event["boundary"], len(host.server.requests)) == ("timeout", 3)


@pytest.mark.parametrize("name", ["rubric", "judged"])
async def test_a_judge_that_never_answers_is_an_outage(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def judged(solution_str: str) -> float:
        model = "openai/gpt-5-mini"
        return (await evaluate_rubric(solution_str=solution_str, rubric="Right?", model=model)).score

    with ChatServer(never()) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-judge-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        scorer: Any = {"judge": rubric_judge(server)}
        if name == "judged":
            scorer = {"functions": (eval_function(name, judged),)}
        async with core_host(server, grader_timeout_s=TIME_S, **scorer) as host:
            host.score(0, name)
            await host.asked(1)
            await host.clock.advance(TIME_S)
            event = await host.heard("score", 0)
    error = event["errors"][name]
    assert error["message"] == "no answer of the judge within the 50 s of grader_timeout_s"
    assert error["boundary"] == "provider"
    assert name == "judged" or error["details"] == ""


async def test_a_silent_judge_of_a_function_that_blocks_is_an_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """The function holds the host's loop, so the server lets time pass, also for the loop that asks judges."""

    async def running_loop() -> asyncio.AbstractEventLoop:
        return asyncio.get_running_loop()

    def judged(solution_str: str) -> float:
        info: Any = {"provider": "openai", "model": "gpt-5-mini"}
        return cast(float, evaluate_rubric("Right?", solution_str, info))

    async def silent(exchange: Exchange) -> web.StreamResponse:
        host.clock.time += TIME_S
        asking.call_soon_threadsafe(int)
        return await never()(exchange)

    with ChatServer(silent) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-judge-0123456789")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        functions = (eval_function("judged", judged),)
        async with core_host(server, functions=functions, grader_timeout_s=TIME_S) as host:
            asking = await OWN_LOOP.wait_for(running_loop())
            monkeypatch.setattr(asking, "time", host.clock.now)
            host.score(0, "judged")
            event = await host.heard("score", 0)
    assert event["errors"]["judged"]["boundary"] == "provider"


async def test_agents_that_wait_for_ever_are_cancelled_where_they_are() -> None:
    async def waits(ctx: ChatContext) -> None:
        await asyncio.Event().wait()

    async with core_host(never(), waits, agent_timeout_s=TIME_S) as host:
        host.run(0)
        await host.heard("start", 0)
        await settled()
        await host.clock.advance(TIME_S)
        event = await host.rollout(0)
    assert (event["boundary"], event["error"]) == ("timeout", "took longer than 50 s (agent_workflow_timeout_s)")
    assert "await asyncio.Event().wait()" in event["details"]


async def test_an_agent_that_swallows_every_cancellation_is_reported_where_it_is() -> None:
    async def swallows(ctx: ChatContext) -> None:
        while not host.core.closing:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

    async with core_host(never(), swallows, agent_timeout_s=TIME_S) as host:
        host.run(0)
        await host.heard("start", 0)
        await settled()
        for seconds in (TIME_S, *[CANCEL_AGAIN_S] * STUCK_AFTER):
            assert [event["ev"] for event in host.events] == ["start"]
            await host.clock.advance(seconds)
        event = await host.heard("stalled", 0)
    assert "await asyncio.Event().wait()" in event["stack"]


async def test_a_function_that_waits_for_ever_is_cancelled_where_it_is() -> None:
    async def waits(solution_str: str) -> float:
        return float(await asyncio.Event().wait())

    async with core_host(never(), functions=(eval_function("waits", waits),), grader_timeout_s=TIME_S) as host:
        host.score(0, "waits")
        await host.heard("scoring", 0)
        await settled()
        await host.clock.advance(TIME_S)
        event = await host.heard("score", 0)
    assert event["errors"]["waits"]["message"] == "took longer than 50 s (grader_timeout_s)"
    assert "await asyncio.Event().wait()" in event["errors"]["waits"]["details"]


async def test_a_function_in_a_thread_goes_on_after_its_deadline() -> None:
    begun, over = threading.Event(), threading.Event()

    def blocks(ctx: ChatContext) -> None:
        begun.set()
        over.wait()

    async with core_host(never(), ThreadedFunctionAgent("rollout", blocks), agent_timeout_s=TIME_S) as host:
        host.run(0)
        await asyncio.to_thread(begun.wait)
        await host.clock.advance(TIME_S)
        event = await host.rollout(0)
        over.set()
    assert event["boundary"] == "timeout"
    assert "its thread was here, and goes on:" in event["details"]
    assert "over.wait()" in event["details"]
