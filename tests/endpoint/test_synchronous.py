"""Agents that ask the model with official clients, at the URL of their rollout, also in threads and on the event loop,
which they hold.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from tests.engine.evaluating import Workspace, asked_rows, evaluated, running
from tests.host_clock import HostClock
from tests.servers import Behaviour, ChatServer, Exchange, never, reply, status

HOLDING = """
from openai import OpenAI

OpenAI(base_url="http://localhost/v1", api_key="-").chat.completions  # imports what the rollout's time must not pay for

async def rollout(ctx):
    client = OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    for _ in range(2):
        client.chat.completions.create(model="x", messages=ctx.prompt)
"""


def test_a_synchronous_client_on_the_loop_is_answered(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(HOLDING)
    execution = {"requests_per_minute": 600}
    live = evaluated(workspace.config(server, sampling={"seed": 3}, execution=execution))

    assert live.kinds() == ["passed"] * 4
    assert asked_rows(server) == dict.fromkeys(range(4), 2)
    assert [event["usage"] for event in live.events("rollout")] == [{"input_tokens": 14, "output_tokens": 6}] * 4
    assert len({body["seed"] for body in server.bodies}) == 4


def test_failures_of_a_client_on_the_loop_are_those_of_its_run(workspace: Workspace) -> None:
    workspace.agent(HOLDING)
    with ChatServer(status(503), reply("42"), status(401)) as server:
        config = workspace.config(server, evaluation={"batch_size": 1}, model={"max_retries": 1})
        live = evaluated(config)

    first = live.events("rollout")[0]
    assert (first["boundary"], first["retries"]) == ("provider", 1)
    assert first["usage"] == {"input_tokens": 7, "output_tokens": 3}
    assert first["error"].startswith("the server answered 401 Unauthorized")
    assert len(server.requests) == 3
    assert live.kinds()[0] == "error"
    assert live.kinds()[2:] == ["skipped"] * 2


def test_a_client_on_the_loop_that_gets_no_answer_ends_with_its_rollout(workspace: Workspace, tmp_path: Path) -> None:
    clock = HostClock(tmp_path / "clock")
    workspace.agent(HOLDING)
    with ChatServer(never(), reply("42")) as server:
        config = workspace.config(server, evaluation={"agent_workflow_timeout_s": 60.0}, data={"rows": "0"})
        with running(config, environ=clock.environ) as live:
            server.wait_for(lambda server: len(server.requests) == 1)
            clock.advance(60)
            live.wait()

    event = live.events("rollout")[0]
    assert event["boundary"] == "provider", event


THREADED = """
import contextvars, threading
from openai import OpenAI

OpenAI(base_url="http://localhost/v1", api_key="-").chat.completions  # imports what a rollout's time must not pay for

def rollout(ctx):
    print("in the thread of", ctx.row_index)
    client = OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    client.chat.completions.create(model="x", messages=ctx.prompt)
    if ctx.row_index == 1:
        raise KeyError("of the agent")
    if ctx.row_index == 2:
        raise SystemExit("of the agent")
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""


def test_a_synchronous_function_runs_in_a_thread(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(THREADED)
    live = evaluated(workspace.config(server))

    events = {event["row"]: event for event in live.events("rollout")}
    assert live.kinds()[0] == "passed"
    assert [events[row].get("boundary") for row in range(4)] == [None, "agent", "agent", None]
    assert events[1]["error"] == "KeyError: 'of the agent'"
    assert "in rollout" in events[1]["details"]
    assert [events[row]["output"]["stdout"] for row in range(4)] == [f"in the thread of {row}\n" for row in range(4)]
    assert events[3]["usage"] == {"input_tokens": 7, "output_tokens": 3}


HANGS_UP = """
import asyncio
from openai import AsyncOpenAI

async def rollout(ctx):
    client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    asked = asyncio.create_task(client.chat.completions.create(model="x", messages=ctx.prompt))
    if ctx.row_index == 3:
        await asked
        return
    while not os.path.exists(os.path.join(os.environ["ARRIVALS"], ctx.prompt[0]["content"])):
        await asyncio.sleep(0.01)
    if ctx.row_index < 2:
        asked.cancel()
    return [{"role": "assistant", "content": "42"}]  # row 2 leaves its request behind
"""


def arriving(folder: Path) -> Behaviour:
    """Takes the request, leaves a file with the name of its prompt, and never answers."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        (folder / exchange.seen.body["messages"][0]["content"]).touch()
        return await never()(exchange)

    return behave


def test_a_client_that_hangs_up_frees_its_place(workspace: Workspace) -> None:
    """Requests in flight are limited to one, and permits to the number of the answers."""
    workspace.agent(HANGS_UP)
    unanswered = arriving(workspace.root)
    with ChatServer(unanswered, unanswered, unanswered, reply("42")) as server:
        execution = {"requests_per_minute": 600}
        config = workspace.config(server, evaluation={"batch_size": 1}, execution=execution)
        live = evaluated(config, environ={"ARRIVALS": str(workspace.root)})

    assert live.kinds() == ["passed"] * 4
    assert len(server.requests) == 4


LEFT_BEHIND = """
import openai

KEPT = []

async def rollout(ctx):
    KEPT.append(ctx)
    for each in KEPT:
        client = openai.AsyncOpenAI(base_url=each.base_url, api_key=each.api_key)
        try:
            await client.chat.completions.create(model="x", messages=ctx.prompt)
        except openai.APIStatusError as error:
            assert error.status_code == 410 and "is over" in error.message, error
        else:
            assert each is ctx
"""


def test_requests_for_a_rollout_that_is_over_are_refused(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(LEFT_BEHIND)
    assert evaluated(workspace.config(server, evaluation={"batch_size": 1})).kinds() == ["passed"] * 4
    assert len(server.requests) == 4
