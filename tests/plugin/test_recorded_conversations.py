"""Scores of conversations that rows hold, without a model; of checks; and of a scorer of another library."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace, read_json

pytestmark = pytest.mark.usefixtures("wide_terminal")

REWARDS = """
def right(solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)

async def turns(messages, metadata=None, **kwargs):
    return {"score": 1.0, "metrics": {"turns": len(messages)}}
"""
GRADER = """
from pytest_osmosis import Grader

class Strict(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.sample.messages[-1]["content"] == ctx.label))
"""
CALL = {"id": "1", "type": "function", "function": {"name": "multiply", "arguments": "{}"}}
CONVERSATION = [
    {"role": "user", "content": "6 * 7?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "1", "content": "42"},
    {"role": "assistant", "content": "42"},
]
ROWS: Sequence[Mapping[str, Any]] = [
    {"id": "chat", "messages": CONVERSATION, "ground_truth": "42"},
    {"original_input": "2 + 2?", "solution_str": "5", "ground_truth": "4"},
    {"user_prompt": "1 + 1?", "solution_str": "2", "ground_truth": "2"},
]
TYPED = ("--osmosis-agent=recorded", "--osmosis-dataset=answers.jsonl", "--osmosis-eval-fn=rewards:right")


def fill(workspace: Workspace, path: str = "answers.jsonl", rows: Sequence[Mapping[str, Any]] = ROWS) -> None:
    workspace.write("rewards.py", REWARDS)
    workspace.write(path, "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.addon
def test_a_folder_of_trajectories_is_scored_like_other_rows(workspace: Workspace) -> None:
    fill(workspace)
    for name, answer in (("t1", "42"), ("t2", "41")):
        steps = [{"source": "user", "message": "6 * 7?"}, {"source": "agent", "message": answer}]
        document = {"schema_version": "ATIF-v1.7", "agent": {"name": "a", "version": "1"}, "steps": steps}
        told = {"extra": {"osmosis": {"label": "42"}}}
        workspace.write(f"jobs/{name}/agent/trajectory.json", json.dumps({**document, **told}))
    command = ("--osmosis-agent=recorded", "--osmosis-dataset=jobs", "--osmosis-eval-fn=rewards:right")
    result = workspace.run(*command)
    again = workspace.run("jobs/t1/agent/trajectory.json::jobs[row0-run0]", *command)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["dataset row: jobs/t2/agent/trajectory.json"])
    again.assert_outcomes(passed=1)


def test_conversations_are_scored_without_a_toml_and_without_a_model(workspace: Workspace) -> None:
    fill(workspace)

    result = workspace.run(*TYPED, "--osmosis-eval-fn=rewards:turns", "--osmosis-output=results.json")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines("""
          model: recorded conversations, no model is asked
          3 rows x 1 run: the rows hold the conversations, nothing is rolled out, 1 in flight *
          agent: recorded, scored by rewards:right, rewards:turns
        rewards:right 0 < 1: answered "5", expected "4"
          user: 2 + 2?
          assistant: 5
        0 tokens, $0, *
    """)
    published = read_json(workspace.root / "results.json")
    assert (published["config"]["model"], published["config"]["recorded"]) == ("recorded", True)
    assert [run["tokens"] for row in published["rows"] for run in row["runs"]] == [0, 0, 0]
    assert published["rows"][0]["runs"][0]["metrics"] == {"rewards:turns": {"turns": 4}}


def test_a_toml_scores_with_a_grader_shows_and_scores_again(workspace: Workspace) -> None:
    scoring = {"eval_fns": None, "grader": "graders:Strict"}
    workspace.eval(experiment={"model_path": "openai/gpt-5"}, agent={"agent": "recorded"}, scoring=scoring)
    fill(workspace, "data/x.jsonl")
    workspace.write("graders.py", GRADER)

    result = workspace.run(CONFIG, "--osmosis-gate=pass_rate >= 0.5", exits=0)

    result.assert_outcomes(passed=3, xfailed=1)
    result.stdout.fnmatch_lines("""
          model: recorded conversations of openai/gpt-5, no model is asked
        gate pass_rate >= 0.5: HOLDS: 0.667 *
    """)
    shown = workspace.show("row0-run0")
    assert "    -> multiply({})" in shown
    assert shown.count("assistant:") == 2

    lines = [{**ROWS[1], "solution_str": "4"}, {**ROWS[0], "ground_truth": "43"}]
    fill(workspace, "data/x.jsonl", [lines[1], lines[0], ROWS[2]])
    again = workspace.run("--osmosis-from=latest").outlines
    assert "  note: row 1: the conversation changed after the rollout; not scored" in again
    assert "  note: row 0: changed after the rollout, except in the conversation; scored as now" in again


SCORERS = """
from types import SimpleNamespace

class Exact:
    def eval(self, output, expected=None, **kwargs):
        return SimpleNamespace(score=float(output == expected), metadata={"rationale": "compared"}, error=None)

    async def eval_async(self, output, expected=None, **kwargs):
        raise AssertionError
"""


def write(workspace: Workspace, most_words: int) -> None:
    """Write an eval over answers of which one is right and both are short."""
    checks = [{"name": "short", "kind": "length", "max": most_words, "unit": "words"}, {"kind": "tokens", "max": 10}]
    workspace.eval(
        rows=[{"solution_str": f"You have {n} days.", "ground_truth": "30 days"} for n in (30, 3)],
        experiment={"model_path": None},
        agent={"agent": "recorded"},
        scoring={"eval_fns": ["contains", "scorers:Exact"], "decide": "contains", "checks": checks},
        gate={"short": {"pass_rate": ">= 0.9"}},
    )


def test_checks_score_with_reasons_and_only_a_changed_one_scores_again(workspace: Workspace) -> None:
    workspace.write("scorers.py", SCORERS)
    write(workspace, 9)

    workspace.run(CONFIG).stdout.fnmatch_lines(["gate short pass_rate >= 0.9: HOLDS: 1.000 (2 of 2 runs passed)"])
    assert 'reason of contains: does not contain "30 days"' in [line.strip() for line in workspace.show("row1-run0")]
    runs = [row["runs"][0] for row in workspace.results()["rows"]]
    assert [run["scores"] for run in runs] == [
        {"scorers:Exact": 0.0, "contains": 1.0, "short": 1.0, "tokens": 1.0},
        {"scorers:Exact": 0.0, "contains": 0.0, "short": 1.0, "tokens": 1.0},
    ]
    assert runs[0]["reasons"] == {
        "scorers:Exact": "compared",
        "contains": 'contains "30 days"',
        "short": "has 4 words",
        "tokens": "uses 0 tokens",
    }
    assert workspace.results()["config"]["eval_fns"] == ["scorers:Exact", "contains", "short", "tokens"]

    write(workspace, 3)
    workspace.run("--osmosis-from=latest").stdout.fnmatch_lines("""
        reused * 2 stored scores of contains, 2 stored scores of tokens (code and rows unchanged)*
        gate short pass_rate >= 0.9: FAILS: 0.000 (0 of 2 runs passed)
    """)


@pytest.mark.parametrize("truth", ["", ', "ground_truth": ""', ', "ground_truth": null'])
@pytest.mark.parametrize(("checks", "exits"), [([], 4), ([{"kind": "contains", "value": "30 days"}], 0)])
def test_without_any_ground_truth_a_check_that_needs_one_is_refused_before_anything_is_paid(
    workspace: Workspace, checks: list[dict[str, str]], exits: int, truth: str
) -> None:
    scoring = {"checks": checks} if checks else {"eval_fns": ["contains"]}
    workspace.eval(experiment={"model_path": None}, agent={"agent": "recorded"}, scoring=scoring)
    workspace.write("data/x.jsonl", f'{{"user_prompt": "How long?", "solution_str": "You have 30 days."{truth}}}\n')

    result = workspace.run(CONFIG, exits=exits)

    told = 'ERROR: data/x.jsonl: column "ground_truth": no selected row has one, and contains compares with it *'
    if exits:
        result.stderr.fnmatch_lines([told])
