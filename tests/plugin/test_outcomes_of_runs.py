"""What became of each run, as its test, its results and a gate see it: the table of outcomes, row by row."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from aiohttp import web

from tests.plugin.workspaces import Row, Workspace, junit_cases
from tests.servers import Behaviour, ChatServer, Exchange, reply, status

AGENT = """
import asyncio

async def rollout(ctx):
    if ctx.metadata.get("agent") == "raises":
        raise LookupError("the agent broke")
    if ctx.metadata.get("agent") == "hangs":
        await asyncio.sleep(600)
    await ctx.chat(ctx.prompt)
"""
GRADER = """
from pytest_osmosis import Grader

class Removes(Grader):
    async def grade(self, ctx):
        ctx.sample.remove_sample = ctx.metadata.get("grader") == "removes"
        ctx.set_reward(1.0)
"""
ROWS: dict[str, Row] = {
    "passed": {},
    "below": {"score": 0.25},
    "model": {"user_prompt": "refused with 400"},
    "agent": {"agent": "raises"},
    "timeout": {"agent": "hangs"},
    "provider": {"user_prompt": "refused with 503"},
    "reward": {"reward": "raises"},
    "removed": {"grader": "removes"},
}


def by_prompt() -> Behaviour:
    """Answers as the prompt says."""

    async def behave(exchange: Exchange) -> web.StreamResponse:
        prompt = exchange.seen.body["messages"][-1]["content"]
        failing = {"refused with 400": status(400), "refused with 503": status(503)}
        return await failing.get(prompt, reply("42"))(exchange)

    return behave


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(by_prompt()) as server:
        yield server


def make(workspace: Workspace, server: ChatServer, gate: Row | None = None) -> None:
    """An eval with a row for each outcome."""
    workspace.write("agents.py", AGENT)
    workspace.write("graders.py", GRADER)
    workspace.eval(
        rows=ROWS.values(),
        agent={"agent": "agents:rollout"},
        evaluation={"batch_size": 8, "agent_workflow_timeout_s": 2.0, "pass_threshold": 0.5},
        scoring={"grader": "graders:Removes"},
        model={"base_url": server.base_url, "max_retries": 0},
        limits={"max_errors": 5},
        gate=gate or {},
    )


BESIDE = ("properties", "system-out")


def reported(workspace: Workspace) -> dict[str, tuple[str, str]]:
    """For each row's name how JUnit reports its test, and the message."""
    cases = junit_cases(workspace.root / "junit.xml")
    found = {}
    for index, name in enumerate(ROWS):
        children = (child for child in cases[f"x[row{index}-run0]"] if child.tag not in BESIDE)
        child = next(children, None)
        kind = "passed" if child is None else child.get("type", child.tag).removeprefix("pytest.")
        found[name] = (kind, "" if child is None else child.attrib["message"])
    return found


RUN = ("--osmosis-config=configs/eval/x.toml", "--osmosis-no-probe", "--junitxml=junit.xml")


def test_without_a_gate_each_run_is_its_own_verdict(workspace: Workspace, server: ChatServer) -> None:
    make(workspace, server)

    result = workspace.run(*RUN)

    result.assert_outcomes(passed=1, failed=1, errors=5, skipped=1)
    assert result.ret == 1
    outcomes = reported(workspace)
    assert {name: kind for name, (kind, _) in outcomes.items()} == {
        "passed": "passed",
        "below": "failure",
        **dict.fromkeys(["model", "agent", "timeout", "provider", "reward"], "error"),
        "removed": "skip",
    }
    assert "rewards:score 0.25 < 0.5" in outcomes["below"][1]
    for name in ("model", "agent", "timeout", "provider"):
        assert f"{name}: " in outcomes[name][1]
    assert "scorer error: rewards:score: ZeroDivisionError: the reward function broke" in outcomes["reward"][1]
    assert "remove_sample" in outcomes["removed"][1]
    check_shown(result)
    check_results(workspace)


def check_shown(result: pytest.RunResult) -> None:
    """The terminal shows the end of the conversation, the user's traceback and how to run it again."""
    result.stdout.fnmatch_lines_random(
        [
            "*rewards:score 0.25 < 0.5*",
            "  assistant: 42",
            "dataset row: data/x.jsonl:2",
            "run it again: pytest 'configs/eval/x.toml::x?row1-run0?' --osmosis-no-probe",
            '    raise ZeroDivisionError("the reward function broke")',
            '    raise LookupError("the agent broke")',
            "    await asyncio.sleep(600)",
        ]
    )
    assert "pytest_osmosis/" not in result.stdout.str()


def check_results(workspace: Workspace) -> None:
    """results.json tells the outcomes apart."""
    results = workspace.results()
    runs = {name: results["rows"][index]["runs"][0] for index, name in enumerate(ROWS)}
    assert {name: (run["status"], run["success"]) for name, run in runs.items()} == {
        **dict.fromkeys(["passed", "below", "reward"], ("finished", True)),
        **dict.fromkeys(["model", "agent", "timeout", "provider"], ("failed", False)),
        "removed": ("skipped", True),
    }
    assert {name: run.get("boundary") for name, run in runs.items()} == {
        **dict.fromkeys(["passed", "below", "removed"]),
        **{name: name for name in ("model", "agent", "timeout", "provider", "reward")},
    }
    assert {name for name, run in runs.items() if run.get("error")} == {
        "model",
        "agent",
        "timeout",
        "provider",
        "reward",
    }
    assert [name for name, run in runs.items() if run.get("infra")] == ["provider"]
    assert runs["below"]["scores"] == {"rewards:score": 0.25, "reward": 1.0}
    assert runs["reward"]["scores"] == {"reward": 1.0}
    assert runs["agent"]["scores"] == runs["removed"]["scores"] == {}
    summary = results["summary"]
    assert summary["measured"] == 5
    assert summary["pass_rate"] == pytest.approx(1 / 7)
    assert summary["eval_fns"]["rewards:score"]["mean"] == pytest.approx(1.25 / 7)
    assert json.dumps(results, allow_nan=False)


def test_where_a_gate_decides_runs_do_not_fail(workspace: Workspace, server: ChatServer) -> None:
    make(workspace, server, gate={"pass_rate": ">= 0.1"})

    result = workspace.run(*RUN)

    result.assert_outcomes(passed=2, xfailed=6, skipped=1)
    assert result.ret == 0
    outcomes = reported(workspace)
    assert {name: kind for name, (kind, _) in outcomes.items()} == {
        "passed": "passed",
        **dict.fromkeys(["below", "model", "agent", "timeout", "provider", "reward"], "xfail"),
        "removed": "skip",
    }
    assert "0.25 < 0.5" in outcomes["below"][1]
    assert outcomes["agent"][1].startswith("agent: LookupError: the agent broke")
    assert outcomes["reward"][1].startswith("scorer error: ")
