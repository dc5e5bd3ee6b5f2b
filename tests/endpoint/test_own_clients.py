"""Agents that ask the model with the official clients, at the URL of their rollout."""

from __future__ import annotations

from tests.engine.evaluating import Workspace, evaluated
from tests.servers import ChatServer, reply, status

OPENAI = """
from openai import AsyncOpenAI

async def rollout(ctx):
    client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    await client.chat.completions.create(model="any-name", messages=ctx.prompt, temperature=0.25)
"""
FAILING = """
async def rollout(ctx):
    client = AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key)
    await ctx.chat(ctx.prompt)
    try:
        await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)
    except Exception as error:
        raise KeyError("the framework's own error") from None
"""


def test_requests_of_an_agents_own_client_are_those_of_its_run(workspace: Workspace, server: ChatServer) -> None:
    workspace.agent(OPENAI)
    sampling = {"temperature": 0.5, "max_tokens": 7, "seed": 11}
    live = evaluated(workspace.config(server, sampling=sampling))

    assert live.kinds() == ["passed"] * 4
    assert [record.usage for record in live.results.records] == [{"input_tokens": 7, "output_tokens": 3}] * 4
    asked = [(body["model"], body["temperature"], body["max_tokens"]) for body in server.bodies]
    assert asked == [("served", 0.25, 7)] * 4
    assert len({body["seed"] for body in server.bodies}) == 4
    event = live.events("rollout")[0]
    assert [message["content"] for message in event["messages"]][1:] == ["42"]
    assert event["model"] == "served-model"


def test_a_rollout_is_charged_to_its_last_failed_request(workspace: Workspace) -> None:
    workspace.agent("from openai import AsyncOpenAI\n" + FAILING)
    with ChatServer(reply("42"), status(503)) as server:
        live = evaluated(workspace.config(server, model={"max_retries": 1}, data={"rows": "0"}))

    assert len(server.requests) == 3, "the client must not repeat what the host has repeated"
    event = live.events("rollout")[0]
    assert (event["boundary"], event["retries"]) == ("provider", 1)
    assert event["error"] == "the server answered 503 Service Unavailable: scripted 503 (2 tries)"
    assert event["usage"] == {"input_tokens": 7, "output_tokens": 3}
