"""Agents with a client of their own, as a user runs them: in one process, under xdist, and in a debugger's process."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, reply

INLINE = ("--osmosis-inline", "-Werror")
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
@pytest.mark.parametrize(
    ("agent", "endpoint", "options"),
    [
        ("by_url", "url", ()),
        ("by_environment", "env", ()),
        ("by_url", "url", INLINE),
        ("on_the_loop", "url", INLINE),
        ("by_environment", "env", INLINE),
    ],
)
def test_requests_of_own_clients_are_counted(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, agent: str, endpoint: str, options: tuple[str, ...]
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
        result = workspace.run(CONFIG, *options)

    result.assert_outcomes(passed=2)
    assert workspace.results()["summary"]["total_tokens"] == 20
    assert len(server.requests) == 3, "the probe and two runs"
