"""Reward functions that need all runs of a row: such a row is rolled out whole, and scored once it is."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.plugin.workspaces import Workspace

SOURCE = """
import json, os
from pathlib import Path


class Rubric:
    has_group_rewards = True

    async def score_group(self, states):
        with open("groups.txt", "a") as file:
            print(json.dumps([os.getpid(), [state["live"] for state in states]]), file=file)
        if Path("crash").exists():
            os._exit(3)
        for state in states:
            state["reward"] = len(states) / 10
            state["metrics"] = {"runs": len(states)}


class Environment:
    pass_threshold = 0.1

    def __init__(self):
        self.rubric = Rubric()

    def get_eval_dataset(self, n=-1, seed=None):
        return [{"prompt": [{"role": "user", "content": f"{index} * 2?"}], "answer": "0"} for index in range(4)]

    async def rollout(self, input, client, model, sampling_args=None):
        with open("rollouts.txt", "a") as file:
            print(input["prompt"][0]["content"].split()[0], os.getpid(), file=file)
        if Path("fails").exists() and not Path("failed").exists():
            Path("failed").touch()
            raise ValueError("no luck")
        response = await client.get_response(input["prompt"], model, sampling_args or {}, None)
        said = [{"role": "assistant", "content": response.message.content}]
        return dict(input, trajectory=[], completion=said, live=os.getpid())


def load_environment():
    return Environment()
"""
EVAL = ("--osmosis-env=together", "--osmosis-model=demo/arithmetic", "--osmosis-n=3", "--osmosis-limit=4")
ID = "environments/together/together.py::together"


def write(workspace: Workspace) -> None:
    workspace.write("environments/together/together.py", SOURCE)
    workspace.write("environments/together/pyproject.toml", '[project]\nname = "together"\nversion = "1.0"\n')


def rolled_out(workspace: Workspace) -> Counter[int]:
    lines = (workspace.root / "rollouts.txt").read_text().split("\n")
    return Counter(int(line.split()[0]) for line in lines if line)


def groups(workspace: Workspace) -> list[Any]:
    return [json.loads(line) for line in (workspace.root / "groups.txt").read_text().splitlines()]


def events(workspace: Workspace, kind: str) -> list[Any]:
    journal = (workspace.root / ".osmosis/runs/one/journal.jsonl").read_text()
    return [event for line in journal.splitlines() if (event := json.loads(line))["ev"] == kind]


@pytest.mark.slow
def test_a_row_is_scored_whole_in_the_host_that_rolled_it_out(workspace: Workspace) -> None:
    write(workspace)

    workspace.run(*EVAL, "--osmosis-max-in-flight=4", "-n2").assert_outcomes(passed=12)

    assert rolled_out(workspace) == dict.fromkeys(range(4), 3)
    for pid, live in groups(workspace):
        assert live == [pid] * 3
    rows = workspace.results("together")["rows"]
    assert {run["scores"]["reward"] for row in rows for run in row["runs"]} == {0.3}


def test_one_selected_run_brings_the_others_of_its_row(workspace: Workspace) -> None:
    write(workspace)

    result = workspace.run(f"{ID}[row2-run1]", *EVAL)

    result.assert_outcomes(passed=1)
    assert rolled_out(workspace) == {2: 3}
    result.stdout.fnmatch_lines(["*2 runs besides the selected ones are made and counted*"])


def test_a_run_that_failed_is_left_out_of_its_group_until_it_is_made_again(workspace: Workspace) -> None:
    write(workspace)
    workspace.write("fails", "")
    command = (*EVAL[:-1], "--osmosis-limit=1", "--osmosis-run=one")

    workspace.run(*command).stdout.fnmatch_lines(["*the runs of 1 row were scored together without 1 run that failed*"])
    assert [event["scores"] for event in events(workspace, "score")] == [{"reward": 0.2}] * 2
    workspace.run(*command, "--osmosis-retry-failed").assert_outcomes(passed=3)
    assert [event["scores"] for event in events(workspace, "score")][2:] == [{"reward": 0.3}] * 3
    assert rolled_out(workspace) == {0: 4}, "what is stored is not rolled out again"


def test_a_function_that_ends_two_processes_fails_for_its_whole_row(workspace: Workspace) -> None:
    write(workspace)
    workspace.write("crash", "")
    command = (*EVAL[:-1], "--osmosis-limit=1", "--osmosis-run=one")

    workspace.run(*command).assert_outcomes(errors=4)

    assert rolled_out(workspace) == {0: 3}
    (workspace.root / "crash").unlink()
    workspace.run(*command, "--osmosis-retry-failed").assert_outcomes(passed=3)
    assert rolled_out(workspace) == {0: 3}
    workspace.run("--osmosis-from=one").assert_outcomes(passed=3)
    assert len(groups(workspace)) == 3, "unchanged scores of whole rows are reused"
