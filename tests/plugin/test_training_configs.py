"""Training configs: code, secrets and rows are checked, and a few rows rolled out if there is a model to ask."""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest

from tests.plugin.workspaces import Workspace
from tests.servers import ChatServer, refusal, reply

FILE = "configs/training/x.toml"
CONFIG = f"--osmosis-config={FILE}"
DEMO = "--osmosis-model=demo/arithmetic"

MAIN = """
from pytest_osmosis import AgentWorkflow, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)

class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(float(ctx.label in ctx.sample.messages[-1]["content"]))
"""
TOML = """\
[experiment]
rollout = "mine"
entrypoint = "main.py"
model_path = "Qwen/Qwen3.6-35B-A3B"
dataset = "x"

[training]
max_prompt_length = 20
max_response_length = 30

[secrets]
required = [{secrets}]
"""


def training(
    workspace: Workspace, rows: Sequence[dict[str, object]] | None = None, main: str = MAIN, secrets: str = ""
) -> None:
    """Write configs/training/x.toml with its rollout and its dataset, by default eight rows that fit."""
    given = [{"user_prompt": f"What is {n} * 2?", "ground_truth": str(2 * n)} for n in range(8)]
    workspace.write("data/x.jsonl", "".join(json.dumps(row) + "\n" for row in (given if rows is None else rows)))
    workspace.write("rollouts/mine/main.py", main)
    workspace.write(FILE, TOML.format(secrets=secrets))


@pytest.mark.journey
def test_a_preflight_without_a_model_loads_the_code_and_checks_the_rows(workspace: Workspace) -> None:
    training(workspace)

    result = workspace.run(CONFIG, "-rA", exits=0)

    result.assert_outcomes(skipped=5)
    result.stdout.fnmatch_lines("""
        osmosis: x (configs/training/x.toml), preflight of a training config
          base model: Qwen/Qwen3.6-35B-A3B
          dataset: data/x.jsonl, all 8
          no model to ask: nothing is rolled out or graded
    """)
    result.stdout.fnmatch_lines(["SKIPPED ?5? configs/training/x.toml:1: no model to ask: nothing was rolled out*"])
    assert workspace.run_dirs() == []


def test_a_few_rows_are_rolled_out_and_graded_if_there_is_a_model(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0")) as server:
        result = workspace.run(FILE, f"--osmosis-base-url={server.base_url}", exits=0)
        bodies = [seen.body for seen in server.requests if seen.body["max_tokens"] == 30]
    result.assert_outcomes(passed=5)
    assert len(bodies) == 5
    assert {body["model"] for body in bodies} == {"Qwen/Qwen3.6-35B-A3B"}
    result.stdout.fnmatch_lines(["  slice: 5 rows x 1 run, 5 in flight, scores do not decide"])
    results = workspace.results()
    assert (results["partial"], results["smoke_of"]) == (True, 8)
    assert [run["scores"] for row in results["rows"] for run in row["runs"]] == [{"reward": 1.0}] + [
        {"reward": 0.0}
    ] * 4


def test_secrets_and_rows_are_reported_together(workspace: Workspace) -> None:
    rows: list[dict[str, object]] = [
        {"user_prompt": "What is 1 * 1?", "ground_truth": "1"},
        {"user_prompt": " ", "ground_truth": "1"},
        {"user_prompt": "What is 1 * 3?", "ground_truth": None},
    ]
    training(workspace, rows, secrets='"FIRST_TOKEN"')
    workspace.run(CONFIG, DEMO, exits=4).stderr.fnmatch_lines("""
        ERROR: data/x.jsonl:2: row 1: column "user_prompt": must be a non-blank string*
        ERROR: data/x.jsonl:3: row 2: has neither a ground_truth nor metadata, so no Grader would be called*
        ERROR: secret FIRST_TOKEN: missing or empty in the environment*
    """)
    assert workspace.run_dirs() == []


def test_prompts_that_may_be_too_long_are_noted(workspace: Workspace) -> None:
    training(workspace, [{"user_prompt": "What is 1 * 4? " * times, "ground_truth": "4"} for times in (1, 9)])

    result = workspace.run(CONFIG, exits=0)

    note = "1 prompt may be longer than ?training? max_prompt_length = 20: the longest, row 1, has about 34 tokens"
    result.stdout.fnmatch_lines([f"  note: {note}, estimated as 4 characters each"])


def test_a_rollout_that_breaks_fails_and_a_server_that_is_down_measures_nothing(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0"), refusal("no")) as server:
        asked = (f"--osmosis-base-url={server.base_url}", "--osmosis-no-probe")
        result = workspace.run(CONFIG, *asked, "--osmosis-smoke", "--osmosis-smoke-rows=2", exits=1)
    down = workspace.run(CONFIG, "--osmosis-base-url=http://127.0.0.1:9/v1", exits=9)

    result.assert_outcomes(passed=1, errors=1)
    down.assert_outcomes(skipped=5, errors=1)


def test_a_preflight_and_an_eval_run_in_one_command(workspace: Workspace) -> None:
    training(workspace)
    workspace.eval("y", rows=2)

    result = workspace.run(FILE, "configs/eval/y.toml", "--junitxml=junit.xml", exits=0)

    result.assert_outcomes(passed=2, skipped=5)
    result.stdout.fnmatch_lines(["  x: preflight of a training config, no model to ask", "  y: demo/arithmetic*"])
    names = {case for case in (workspace.root / "junit.xml").read_text().split('"') if case.startswith("x[")}
    assert names == {f"x[row{n}-run0]" for n in range(5)}


@pytest.mark.parametrize("option", ["--osmosis-dry-run", "--co"])
def test_listing_a_preflight_loads_no_code(workspace: Workspace, option: str) -> None:
    training(workspace, main="raise SystemExit\n", secrets="" if option == "--osmosis-dry-run" else '"FIRST_TOKEN"')

    assert workspace.run(CONFIG, option).ret == 0

    assert not (workspace.root / ".osmosis").exists()
