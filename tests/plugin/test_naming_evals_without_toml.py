"""An eval without a TOML: `--osmosis-agent` on a dataset, in the current folder."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.plugin.workspaces import Workspace, read_json

AGENT = """
async def agent_loop(ctx):
    reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""
REWARDS = """
def compute_reward(solution_str, ground_truth, **kwargs):
    return 1.0 if ground_truth in solution_str else 0.0

def at_once(messages, **kwargs):
    return 1.0 if len(messages) == 2 else 0.0
"""
COMMAND = (
    "--osmosis-agent=server:agent_loop",
    "--osmosis-dataset=test_data.jsonl",
    "--osmosis-eval-fn=rewards:compute_reward",
    "--osmosis-model=demo/arithmetic",
)


def fill(workspace: Workspace, folder: str = ".", wrong: int | None = None) -> None:
    """Return a workspace with server.py, rewards.py and test_data.jsonl (12 rows, one with a wrong answer)."""
    rows = [
        {"user_prompt": f"What is {row} * 2?", "ground_truth": "no" if row == wrong else str(row * 2)}
        for row in range(12)
    ]
    workspace.write(f"{folder}/server.py", AGENT)
    workspace.write(f"{folder}/rewards.py", REWARDS)
    workspace.write(f"{folder}/test_data.jsonl", "".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.journey
def test_the_command_of_eval_mode_runs_all_rows(workspace: Workspace) -> None:
    fill(workspace)

    more = ("--osmosis-eval-fn=rewards:at_once", "--osmosis-n=2", "--osmosis-batch-size=8")
    result = workspace.run(*COMMAND, *more, "--osmosis-output=results.json", exits=0)

    result.assert_outcomes(passed=24)
    result.stdout.fnmatch_lines("""
        osmosis: test_data (without a TOML)
          dataset: test_data.jsonl, all 12
          agent: server:agent_loop, scored by rewards:compute_reward, rewards:at_once
    """)
    published = read_json(workspace.root / "results.json")
    assert published["config"]["model"] == "demo/arithmetic"
    assert published["config"]["eval_fns"] == ["rewards:compute_reward", "rewards:at_once"]
    assert published["summary"]["total_runs"] == 24
    assert published["partial"] is False


@pytest.mark.slow
def test_the_suggested_rerun_command_works(workspace: Workspace) -> None:
    fill(workspace, wrong=11)

    result = workspace.run(*COMMAND, "--osmosis-limit=12", "--osmosis-set=sampling.seed=3")

    result.assert_outcomes(passed=11, failed=1)
    hint = next(line for line in result.outlines if line.startswith("run it again: pytest "))
    words = shlex.split(hint.partition("pytest ")[2])
    assert words[0] == "test_data.jsonl::test_data[row11-run0]"
    workspace.run(*words).assert_outcomes(failed=1)
    assert workspace.last_failed() == {words[0]}
    workspace.run(*COMMAND, "--lf").assert_outcomes(failed=1)
    workspace.run(*COMMAND, "-k", "row11-").assert_outcomes(failed=1, deselected=11)


@pytest.mark.slow
def test_a_dataset_argument_needs_no_option(workspace: Workspace) -> None:
    fill(workspace)
    others = [word for word in COMMAND if "dataset" not in word]

    workspace.run("test_data.jsonl::test_data[row3-run0]", *others).assert_outcomes(passed=1)
    missing = workspace.run("test_data.jsonl::test_data[row12-run0]", *others, exits=4)
    text = "not found; this eval has tests like 'test_data.jsonl::test_data?row0-run0?', which --co lists"
    missing.stderr.fnmatch_lines([f"ERROR: *?row12-run0?: {text}; test_data.jsonl -k *"])
    workspace.run("test_data.jsonl::test_data[row3-run0]", exits=4).stderr.fnmatch_lines(
        ["ERROR: test_data.jsonl::test_data?row3-run0?: no eval is named; add --osmosis-agent=*"]
    )


def test_the_current_folder_is_the_workspace_wherever_the_dataset_is(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(workspace, "deep/er")
    (workspace.root / "deep/er/test_data.jsonl").rename(workspace.root / "rows.jsonl")
    monkeypatch.chdir(workspace.root / "deep/er")

    result = workspace.run(*COMMAND, "--osmosis-dataset=../../rows.jsonl", "--osmosis-limit=2", "-v")

    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*rows.jsonl::rows?row1-run0? *"])
    assert (workspace.root / "deep/er/.osmosis/runs").is_dir()


def test_collect_only_loads_and_writes_nothing(workspace: Workspace) -> None:
    fill(workspace)
    (workspace.root / "server.py").unlink()

    result = workspace.run(*COMMAND, "--osmosis-agent=chat", "--osmosis-model=openai/x", "--co", "-q", exits=0)

    assert result.outlines[:2] == ["test_data.jsonl::test_data[row0-run0]", "test_data.jsonl::test_data[row1-run0]"]
    assert not (workspace.root / ".osmosis").exists()
