"""Agents that ask the model with the official clients, at the URL of their rollout."""

from __future__ import annotations

from tests.engine.evaluating import Workspace, evaluated
from tests.servers import ChatServer, never, reply

OPENAI = """
from openai import AsyncOpenAI

async def rollout(ctx):
    client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    await client.chat.completions.create(model="any-name", messages=ctx.prompt, temperature=0.25)
"""
HANGS_UP = """
import asyncio
from openai import AsyncOpenAI

async def rollout(ctx):
    client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    asked = asyncio.create_task(client.chat.completions.create(model="x", messages=ctx.prompt))
    if ctx.row_index < 2:
        await asyncio.sleep(0.3)  # the request is on its way
        asked.cancel()
        return [{"role": "assistant", "content": "42"}]
    if ctx.row_index == 2:
        await asyncio.sleep(0.3)
        return [{"role": "assistant", "content": "42"}]  # and leaves the request behind
    await asked
"""


def test_a_client_that_hangs_up_frees_its_place(workspace: Workspace) -> None:
    """Requests in flight are limited to one, and permits to the number of the answers."""
    workspace.agent(HANGS_UP)
    with ChatServer(never(), never(), never(), reply("42")) as server:
        execution = {"requests_per_minute": 600}
        live = evaluated(workspace.config(server, evaluation={"batch_size": 1}, execution=execution))

    assert live.kinds() == ["passed"] * 4
    assert len(server.requests) == 4


SYNCHRONOUS = """
import asyncio
from openai import OpenAI

async def rollout(ctx):
    client = OpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    for _ in range(2):
        await asyncio.to_thread(client.chat.completions.create, model="x", messages=ctx.prompt)
"""


def test_synchronous_clients_in_threads_work(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(SYNCHRONOUS)
    live = evaluated(workspace.config(server))

    assert live.kinds() == ["passed"] * 4
    assert len(server.requests) == 8


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
