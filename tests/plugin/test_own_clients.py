"""Agents with a client of their own, as a user runs them: in one process, under xdist, and in a debugger's process."""

from __future__ import annotations

import json

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


def write(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write("agents.py", AGENTS)


def configure(workspace: Workspace, server: ChatServer, agent: str, endpoint: str) -> None:
    """Write an eval of two rows."""
    workspace.eval(
        rows=[{"ground_truth": "15"}] * 2,
        model={"base_url": server.base_url},
        agent={"agent": f"agents:{agent}", "endpoint": endpoint},
        evaluation={"batch_size": 2},
    )


def total_tokens(workspace: Workspace) -> int:
    results = json.loads((workspace.root / "results.json").read_text(encoding="utf-8"))
    tokens: int = results["summary"]["total_tokens"]
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "endpoint"), [("by_url", "url"), ("by_environment", "env")])
def test_requests_of_own_clients_are_counted(workspace: Workspace, agent: str, endpoint: str) -> None:
    write(workspace)
    with ChatServer(reply("15")) as server:
        configure(workspace, server, agent, endpoint)
        result = workspace.run(CONFIG, "--osmosis-output=results.json")

    result.assert_outcomes(passed=2)
    assert total_tokens(workspace) == 20
    assert len(server.requests) == 3, "the probe and two runs"


@pytest.mark.slow
@pytest.mark.parametrize(("agent", "endpoint"), [("by_url", "url"), ("on_the_loop", "url"), ("by_environment", "env")])
def test_own_clients_work_in_a_debuggers_process(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, agent: str, endpoint: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    write(workspace)
    with ChatServer(reply("15")) as server:
        configure(workspace, server, agent, endpoint)
        result = workspace.run(CONFIG, "--osmosis-output=results.json", "--osmosis-inline", "-Werror")

    result.assert_outcomes(passed=2)
    assert total_tokens(workspace) == 20
