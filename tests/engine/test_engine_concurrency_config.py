"""The configs of a workflow and a Grader, which may limit how many rollouts and scorings are in flight."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_osmosis.errors import CodeError
from tests.engine.evaluating import Workspace, evaluated

pytestmark = pytest.mark.slow

OURS = """
from pytest_osmosis import AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, GraderConfig

workflow_config = AgentWorkflowConfig(concurrency=ConcurrencyConfig(max_concurrent=ROLLOUTS))
grader_config = GraderConfig(concurrency=ConcurrencyConfig(max_concurrent=SCORINGS))
"""
THEIRS = """
from osmosis_ai.rollout import AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, GraderConfig

workflow_config = AgentWorkflowConfig(name="flow", concurrency=ConcurrencyConfig(max_concurrent=ROLLOUTS))
grader_config = GraderConfig(name="judge", concurrency=ConcurrencyConfig(max_concurrent=SCORINGS))
"""
NOTE = """
import asyncio
import time

def note(text):
    with open("log.txt", "a") as log:
        log.write(text + " ")
"""
CODE = f"""{NOTE}
class Flow(AgentWorkflow):
    async def run(self, ctx):
        note("rollout+")
        await asyncio.sleep(0.02)
        note("rollout-")
        return [*ctx.prompt, {{"role": "assistant", "content": "42"}}]

class Judge(Grader):
    async def grade(self, ctx):
        note("scoring+")
        await asyncio.sleep(0.02)
        note("scoring-")
        ctx.set_reward(1.0)
"""


def most_at_once(log: str, kind: str) -> int:
    """The most rollouts or scorings that a log shows at once."""
    now = most = 0
    for step in log.split():
        now += (step == f"{kind}+") - (step == f"{kind}-")
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("imports", "rollouts", "scorings", "hosts"),
    [(OURS, 1, None, 2), (OURS, None, 2, 1), (THEIRS, 3, 1, 2)],
    ids=["ours", "ours, one host", "osmosis_ai"],
)
def test_a_config_limits_all_hosts_together(
    tmp_path: Path, imports: str, rollouts: int | None, scorings: int | None, hosts: int
) -> None:
    workspace = Workspace(tmp_path, rows=12)
    code = imports.replace("ROLLOUTS", str(rollouts)).replace("SCORINGS", str(scorings)) + CODE
    workspace.write("rollouts/mine/main.py", code)
    live = evaluated(
        workspace.config(
            None,
            experiment={"rollout": "mine", "entrypoint": "main.py"},
            evaluation={"batch_size": 6},
            execution={"hosts": hosts},
            scoring={"eval_fns": []},
        )
    )
    assert live.kinds() == ["passed"] * 12
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert most_at_once(log, "rollout") <= (rollouts or 6)
    assert most_at_once(log, "scoring") <= (scorings or 6)
    said = [text for text in live.loop.notices.texts if "the workflow's config allows" in text]
    assert bool(said) == (rollouts is not None)


def test_a_limit_that_is_no_number_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("rollouts/mine/main.py", OURS.replace("ROLLOUTS", "0").replace("SCORINGS", "None") + CODE)
    with pytest.raises(CodeError, match=r"max_concurrent must be a whole number from 1 on, or None, got 0"):
        evaluated(workspace.config(None, experiment={"rollout": "mine", "entrypoint": "main.py"}))


SCORED = f"""{NOTE}
async def waits(solution_str):
    note("scoring+")
    while open("log.txt").read().count("scoring+") < MEETING:
        await asyncio.sleep(0.01)
    note("scoring-")
    return 1.0

def blocks(solution_str):
    note("scoring+")
    time.sleep(0.02)
    note("scoring-")
    return 1.0
"""


@pytest.mark.parametrize(("generation", "scoring", "interleaved"), [(2, 1, True), (6, 3, True), (1, 6, False)])
def test_rollouts_and_scorings_have_limits_of_their_own(
    tmp_path: Path, generation: int, scoring: int, interleaved: bool
) -> None:
    """They hold for all processes together, those of functions that block included."""
    workspace = Workspace(tmp_path, rows=12)
    workspace.write("rewards.py", f"{SCORED}\nMEETING = {0 if interleaved else 2}\n")
    workspace.agent(
        """
        from rewards import note

        async def rollout(ctx):
            note("rollout+")
            await asyncio.sleep(0.02)
            note("rollout-")
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    execution = {"hosts": 2, "max_concurrent_generation": generation, "max_concurrent_scoring": scoring}
    live = evaluated(
        workspace.config(
            None,
            execution=execution | ({} if interleaved else {"interleave_scoring": False}),
            scoring={"eval_fns": ["rewards:waits", "rewards:blocks"]},
        )
    )
    assert live.kinds() == ["passed"] * 12
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert most_at_once(log, "rollout") <= generation
    assert most_at_once(log, "scoring") <= scoring
    if not interleaved:
        assert most_at_once(log, "scoring") > 1, "with one rollout in flight, several are scored at once"
        assert log.rindex("rollout-") < log.index("scoring+")
