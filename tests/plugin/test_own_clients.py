"""Agents with a client of their own in a debugger's process; `tests/endpoint` has them in hosts."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, reply

REWARDS = """
import os

def score(solution_str, ground_truth, **kwargs):
    assert os.environ.get("OPENAI_API_KEY") in (None, "of-the-user"), "reward functions have the user's environment"
    return float(solution_str == ground_truth)
"""
AGENTS = """
import openai

async def by_url(ctx):
    async with openai.AsyncOpenAI(base_url=ctx.base_url, api_key=ctx.api_key) as client:
        await client.chat.completions.create(model=ctx.model, messages=ctx.prompt)

async def on_the_loop(ctx):
    with openai.OpenAI(base_url=ctx.base_url, api_key=ctx.api_key) as client:
        client.chat.completions.create(model=ctx.model, messages=ctx.prompt)

def by_environment(ctx):
    openai.OpenAI().chat.completions.create(model="any", messages=ctx.prompt)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "endpoint"), [("by_url", "url"), ("on_the_loop", "url"), ("by_environment", "env")])
def test_requests_of_own_clients_are_counted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, agent: str, endpoint: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    workspace.write("rewards.py", REWARDS)
    workspace.write("agents.py", AGENTS)
    with ChatServer(reply("15")) as server:
        workspace.eval(
            rows=[{"ground_truth": "15"}] * 2,
            model={"base_url": server.base_url},
            agent={"agent": f"agents:{agent}", "endpoint": endpoint},
            evaluation={"batch_size": 2},
        )
        result = workspace.run(CONFIG, "--osmosis-inline", "-Werror")

    result.assert_outcomes(passed=2)
    assert workspace.results()["summary"]["total_tokens"] == 20
    assert len(server.requests) == 3, "the probe and two runs"
