"""Agents that ask the model with the official clients, at the URL of their rollout."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

from tests.engine.evaluating import Workspace, evaluated
from tests.servers import Behaviour, ChatServer, Exchange, never, reply

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
    live = evaluated(workspace.config(server, evaluation={"batch_size": 1}))

    assert live.kinds() == ["passed"] * 4
    assert len(server.requests) == 4
