"""Bounds of one rollout: a request that would begin after a bound is met is refused, whatever else the agent does."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.report.summary import remark_lines
from pytest_osmosis.results.publish import published
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated
from tests.servers import ChatServer, completion, data, reply

LOOP = """
async def rollout(ctx):
    while True:
        await ctx.chat(ctx.prompt)
"""
GRACEFUL = """
from pytest_osmosis import BoundError

async def rollout(ctx):
    messages = list(ctx.prompt)
    while True:
        try:
            messages.append((await ctx.chat(messages)).message)
        except BoundError as error:
            assert error.bound.endswith("= 2") and error.boundary == "agent"
            return messages
"""
CALLS = [{"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}} for n in range(2)]
CALLING = {"role": "assistant", "content": None, "tool_calls": CALLS}
PRICES = {"served": {"input": 1000.0, "output": 1000.0}}
"""A tenth of a cent for a token."""
USAGE = {"prompt_tokens": 40, "completion_tokens": 10, "total_tokens": 50}


@pytest.fixture
def workspace(tmp_path: Any) -> Workspace:
    return Workspace(tmp_path, rows=2)


def rolled(workspace: Workspace, answer: Any, code: str = LOOP, **tables: Mapping[str, Any]) -> tuple[Live, list[int]]:
    """Run an eval, and return it with the numbers of requests of each row."""
    workspace.agent(code)
    with ChatServer(answer) as server:
        return evaluated(workspace.config(server, **tables)), sorted(asked_rows(server).values())


THREE_TURNS = {"agent": {"agent": "agent:rollout", "max_turns": 3}}
BOUNDS: Mapping[str, tuple[dict[str, Any], int, str]] = {
    "[agent] max_turns = 3": (THREE_TURNS, 3, "the rollout asked the model 4 times"),
    "[limits.rollout] tokens = 120": ({"tokens": 120}, 3, "the rollout used 150 tokens"),
    "[limits.rollout] cost_usd = 0.1": ({"cost_usd": 0.1}, 2, "the rollout spent $0.10"),
    "[limits.rollout] tool_calls = 4": ({"tool_calls": 4}, 3, "the model asked for 6 tool calls"),
}


@pytest.mark.parametrize("bound", BOUNDS)
def test_a_rollout_that_met_a_bound_asks_no_more(workspace: Workspace, bound: str) -> None:
    given, asked, text = BOUNDS[bound]
    tables = given if given is THREE_TURNS else {"limits": {"rollout": given}, "prices": PRICES}
    live, requests = rolled(workspace, data(completion(CALLING, usage=USAGE)), **tables)

    error = f"{text}: {bound}"
    assert requests == [asked, asked]
    assert [(live.record(row).boundary, live.record(row).error) for row in (0, 1)] == [("agent", error)] * 2
    assert live.record(0).bound == bound
    assert live.results.causes[0].text == error
    assert live.run.engine.stopped is None or live.run.engine.stopped.reason == "closed"


def test_the_default_of_max_turns_bounds_nothing(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent("async def rollout(ctx):\n    for _ in range(12):\n        await ctx.chat(ctx.prompt)\n")

    assert evaluated(workspace.config(server)).kinds() == ["passed"] * 2
    assert set(asked_rows(server).values()) == {12}


def test_an_agent_that_stops_at_a_bound_keeps_its_answer(workspace: Workspace) -> None:
    live, requests = rolled(workspace, reply("42"), GRACEFUL, agent={"agent": "agent:rollout", "max_turns": 2})

    assert requests == [2, 2]
    assert live.kinds() == ["passed"] * 2
    assert [live.record(row).bound for row in (0, 1)] == ["[agent] max_turns = 2"] * 2
    assert published(live.results)["rows"][0]["runs"][0]["bound"] == "[agent] max_turns = 2"
    assert "2 runs met [agent] max_turns = 2 and were scored as far as they got, 2 passed (first: row0-run0)" in (
        remark_lines(live.results)
    )


@pytest.mark.parametrize(
    ("tables", "n_asked"),
    [
        ({"agent": {"agent": "agent:rollout", "max_turns": 4}}, 4),
        ({"evaluation": {"batch_size": 1}, "limits": {"rollout": {"tokens": 100}}}, 2),
    ],
    ids=["sent at once", "one in flight, while others wait"],
)
def test_requests_of_a_rollout_that_wait_keep_to_its_bound(workspace: Workspace, tables: Any, n_asked: int) -> None:
    code = """
    async def rollout(ctx):
        await asyncio.gather(*(ctx.chat(ctx.prompt) for _ in range(9)), return_exceptions=True)
    """
    _, requests = rolled(workspace, reply("42", usage=USAGE), code, **tables)

    assert requests == [n_asked, n_asked]


@pytest.mark.parametrize("bound", [{"tokens": 1000}, {"cost_usd": 5.0}])
def test_a_bound_stops_the_eval_if_the_server_reports_no_usage(workspace: Workspace, bound: dict[str, Any]) -> None:
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(20)])
    tables: dict[str, Any] = {"limits": {"rollout": bound, "max_errors": 10_000}, "prices": PRICES}
    live, requests = rolled(workspace, reply("42", usage=None), **tables)

    [name] = bound
    assert set(requests) == {1}
    assert len(requests) < 20
    assert live.record(0).boundary == "provider"
    assert live.stop.text.endswith(f"[limits.rollout] {name} cannot be kept: the server does not report token usage")


OWN_CLIENT = """
from openai import {client}

async def rollout(ctx):
    client = {client}(base_url=ctx.base_url, api_key=ctx.api_key)
    while True:
        {waits}client.chat.completions.create(model="any", messages=ctx.prompt)
"""


@pytest.mark.parametrize(("client", "waits"), [("AsyncOpenAI", "await "), ("OpenAI", "")])
def test_a_client_of_the_agents_own_is_refused_in_the_same_way(workspace: Workspace, client: str, waits: str) -> None:
    tables: dict[str, Any] = {**THREE_TURNS, "model": {"max_retries": 3}}
    live, requests = rolled(workspace, reply("42"), OWN_CLIENT.format(client=client, waits=waits), **tables)

    error = "the rollout asked the model 4 times: [agent] max_turns = 3"
    assert requests == [3, 3]
    assert [(live.record(row).boundary, live.record(row).error) for row in (0, 1)] == [("agent", error)] * 2
    assert live.record(0).bound == "[agent] max_turns = 3"
