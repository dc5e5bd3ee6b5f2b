"""Code that holds the interpreter's lock and never returns to Python: its timeout is reported, with its stack.

No thread of its host runs any longer, so the engine must find out which run it is. Time limits are short here, so
the model is the embedded one: a slow machine could make the answers of a server late.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from pytest_osmosis.record.run_record import UNINTERRUPTIBLE
from tests.engine.evaluating import Live, Workspace, evaluated

pytestmark = pytest.mark.slow

DEADLINE_S = 60.0
"""Far more than the time limits, the grace after them and new hosts take; a busy machine needs some of it."""
TIMEOUTS = {"agent_workflow_timeout_s": 2, "grader_timeout_s": 2}
FOREVER = "sum(itertools.repeat(0))"
AGENT = """
import itertools

async def rollout(ctx):
    await ctx.chat(ctx.prompt)
    if ctx.row_index == 1:
        sum(itertools.repeat(0))
    await asyncio.sleep(0.5)
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""
SUBTASK = """
import itertools

async def spin():
    sum(itertools.repeat(0))

async def rollout(ctx):
    await ctx.chat(ctx.prompt)
    if ctx.row_index == 1:
        await asyncio.create_task(spin())
    await asyncio.sleep(0.5)
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""
ANSWERS = """
async def rollout(ctx):
    await ctx.chat(ctx.prompt)
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""
SCORER = """
import itertools

{0}def exact(solution_str, ground_truth, extra_info):
    if extra_info["user_prompt"] == "row 1":
        sum(itertools.repeat(0))
    return 1.0
"""


def evaluate(workspace: Workspace, **evaluation: Any) -> tuple[Live, float]:
    """Evaluate, and return how long that took."""
    begun = time.monotonic()
    live = evaluated(workspace.config(None, evaluation={**TIMEOUTS, **evaluation}))
    return live, time.monotonic() - begun


def times_begun(live: Live, row: int) -> int:
    """Return how often a row was rolled out."""
    return [event["row"] for event in live.events("start")].count(row)


@pytest.mark.clock
def test_an_agent_in_a_c_loop_is_a_timeout_and_is_rolled_out_once(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    live, took_s = evaluate(workspace)
    record = live.record(1)
    assert (record.boundary, record.attempt) == ("timeout", 1)
    assert str(record.error).startswith(UNINTERRUPTIBLE)
    assert f'agent.py", line 8, in rollout\n    {FOREVER}' in live.outcome(1).text
    assert "pytest_osmosis" not in live.outcome(1).text
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live, 1) == 1
    assert took_s < DEADLINE_S


@pytest.mark.clock
@pytest.mark.slow
def test_a_c_loop_in_a_task_of_an_agent_is_found_in_quarantine_at_the_latest(workspace: Workspace) -> None:
    workspace.agent(SUBTASK)
    live, _ = evaluate(workspace)
    record = live.record(1)
    assert (record.boundary, str(record.error).startswith(UNINTERRUPTIBLE)) == ("timeout", True)
    assert FOREVER in live.outcome(1).text
    assert live.kinds() == ["passed", "error", "passed", "passed"]


@pytest.mark.clock
@pytest.mark.parametrize("kind", ["", "async "], ids=["sync", "async"])
def test_a_reward_function_in_a_c_loop_is_a_reward_error(workspace: Workspace, kind: str) -> None:
    workspace.agent(ANSWERS)
    workspace.write("rewards.py", SCORER.format(kind))
    live, took_s = evaluate(workspace)
    record = live.record(1)
    error = record.scorer_errors["rewards:exact"]
    assert error.message.startswith(UNINTERRUPTIBLE)
    assert f'rewards.py", line 6, in exact\n    {FOREVER}' in error.details
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live, 1) == 1
    assert took_s < DEADLINE_S


@pytest.mark.slow
def test_a_long_c_call_within_the_time_is_no_timeout(workspace: Workspace) -> None:
    workspace.agent(AGENT.replace("repeat(0)", "repeat(0, 600_000_000)"))
    live, _ = evaluate(workspace, agent_workflow_timeout_s=600, grader_timeout_s=600)
    assert live.kinds() == ["passed"] * 4
    assert live.record(1).attempt == 1


@pytest.mark.clock
def test_a_c_loop_harms_no_run_whose_time_is_over_first(workspace: Workspace) -> None:
    code = """
    import itertools

    async def rollout(ctx):
        if ctx.row_index == 0:  # its time is over before the loop ends
            await asyncio.sleep(3.5)
        if ctx.row_index == 1:
            await asyncio.sleep(3.2)
            sum(itertools.repeat(0))
        await ctx.chat(ctx.prompt)
        return [*ctx.prompt, {"role": "assistant", "content": "42"}]
    """
    workspace.agent(code)
    live, _ = evaluate(workspace, agent_workflow_timeout_s=6)
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert live.record(1).attempt == 1
