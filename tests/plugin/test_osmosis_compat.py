"""Code that imports `osmosis_ai`, which the environment of these tests does not have."""

from __future__ import annotations

import importlib.util

import pytest

from tests.plugin.workspaces import CONFIG, PLAIN_AND_XDIST, Workspace

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("osmosis_ai") is not None, reason="osmosis_ai is installed, so nothing stands in for it"
)

REWARDS = """
import re
from osmosis_ai import osmosis_reward

@osmosis_reward
def number(solution_str: str, ground_truth: str, extra_info: dict = None, **kwargs):
    found = re.findall(r"-?[0-9]+", solution_str)
    return float(found[-1:] == [ground_truth])
"""
TESTS = """
import sys
import pytest

def test_of_the_sdk():
    pytest.importorskip("osmosis_ai")

def test_nothing_is_left():
    assert not [name for name in sys.modules if name.startswith("osmosis_ai")]

@pytest.mark.osmosis_eval("configs/eval/x.toml")
def test_of_a_rollout(rollout):
    assert rollout.scores["rewards:number"] == 1.0
"""
NOTE = "osmosis: osmosis_ai is not installed: pytest-osmosis stands in for it (osmosis_compat = false *)"


def write_eval(workspace: Workspace) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.eval(
        rows=[{"solution_str": str(index * 2)} for index in range(3)], scoring={"eval_fns": ["rewards:number"]}
    )


@pytest.mark.addon
@pytest.mark.slow
@PLAIN_AND_XDIST
def test_reward_files_are_tested_and_other_tests_see_no_sdk(workspace: Workspace) -> None:
    write_eval(workspace)
    workspace.ini("osmosis_rewards = rewards.py")
    workspace.write("test_a.py", TESTS)

    result = workspace.run("--osmosis-lab", "-v")

    outcomes = result.parseoutcomes()
    assert outcomes["skipped"] == 1  # importorskip("osmosis_ai")
    assert (outcomes["passed"], outcomes.get("failed", 0), outcomes.get("errors", 0)) == (10, 0, 0)
    if not workspace.distributed:
        result.stdout.fnmatch_lines([NOTE])
        assert "osmosis_ai" not in workspace.run("rewards.py", "-q").stdout.str()


@pytest.mark.slow
@pytest.mark.parametrize("inline", [[], ["--osmosis-inline"]], ids=["hosts", "inline"])
def test_an_eval_scores_with_functions_that_import_the_sdk(workspace: Workspace, inline: list[str]) -> None:
    write_eval(workspace)

    result = workspace.run(CONFIG, *inline, exits=0)

    assert result.parseoutcomes()["passed"] == 3
    result.stdout.fnmatch_lines([NOTE])


@pytest.mark.addon
def test_it_can_be_turned_off(workspace: Workspace) -> None:
    write_eval(workspace)
    workspace.ini("osmosis_rewards = rewards.py", "osmosis_compat = false")

    tested = workspace.run()
    evaluated = workspace.run(CONFIG)

    assert (tested.ret, evaluated.ret) == (2, 4)
    tested.stdout.fnmatch_lines(["osmosis: no module osmosis_ai: *osmosis_compat = false*"])
    evaluated.stderr.fnmatch_lines(["ERROR: x: rewards:number: does not load: *osmosis_compat = false*"])
