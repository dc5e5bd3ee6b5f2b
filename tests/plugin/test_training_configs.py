"""Training configs: their preflight is reported as tests, and a few rows are rolled out if there is a model to ask."""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib.util import find_spec

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

    result = workspace.run(CONFIG, "-rA")

    assert result.ret == 0
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "osmosis: x (configs/training/x.toml), preflight of a training config",
            "  base model: Qwen/Qwen3.6-35B-A3B",
            "  dataset: data/x.jsonl, all 8",
            "  no model to ask: nothing is rolled out or graded",
        ]
    )
    result.stdout.fnmatch_lines(["SKIPPED ?1? configs/training/x.toml:4: no model to ask: nothing was rolled out*"])
    assert workspace.run_dirs() == []


def test_a_few_rows_are_rolled_out_and_graded_if_there_is_a_model(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0")) as server:
        result = workspace.run(FILE, f"--osmosis-base-url={server.base_url}")
        bodies = [seen.body for seen in server.requests if seen.body["max_tokens"] == 30]

    assert result.ret == 0  # most answers are wrong, and scores do not decide
    result.assert_outcomes(passed=7)
    assert len(bodies) == 5
    assert {body["model"] for body in bodies} == {"Qwen/Qwen3.6-35B-A3B"}
    result.stdout.fnmatch_lines(["  slice: 5 rows x 1 run, 5 in flight, scores do not decide"])
    results = workspace.results()
    assert (results["partial"], results["smoke_of"]) == (True, 8)
    assert [run["scores"] for row in results["rows"] for run in row["runs"]] == [{"reward": 1.0}] + [
        {"reward": 0.0}
    ] * 4


def test_everything_that_does_not_fit_is_the_failure_of_a_test(workspace: Workspace) -> None:
    """Four findings in one command. Of the rows, only those that fit are planned."""
    rows: list[dict[str, object]] = [
        {"user_prompt": "What is 1 * 1?", "ground_truth": "1"},
        {"user_prompt": " ", "ground_truth": "1"},
        {"user_prompt": "What is 1 * 3?", "ground_truth": None},
        {"user_prompt": "What is 1 * 4? " * 9, "ground_truth": "4"},
    ]
    training(workspace, rows, main="import missing_module\n", secrets='"FIRST_TOKEN"')

    result = workspace.run(CONFIG, DEMO)

    assert result.ret == 1
    result.assert_outcomes(failed=3, errors=2)
    result.stdout.fnmatch_lines(
        [
            "  note: 1 prompt may be longer than ?training? max_prompt_length = 20: the longest, row 3, has about *",
            "not rolled out, because its code does not load: *missing_module*",
            "secret FIRST_TOKEN: missing or empty in the environment*",
            'data/x.jsonl:2: row 1: column "user_prompt": must be a non-blank string*',
            "data/x.jsonl:3: row 2: has neither a ground_truth nor metadata, so no Grader would be called for it",
            "*main.py: does not load: ModuleNotFoundError: No module named 'missing_module'",
        ]
    )
    result.stdout.fnmatch_lines(["ERROR configs/training/x.toml::x?row3-run0? - *"])
    assert workspace.run_dirs() == []
    assert workspace.last_failed() == {
        f"{FILE}::x[{name}]" for name in ("secrets", "rows", "rollout", "row0-run0", "row3-run0")
    }


@pytest.mark.slow
def test_a_missing_secret_keeps_rows_from_being_rolled_out(workspace: Workspace) -> None:
    training(workspace, secrets='"FIRST_TOKEN"')
    workspace.write("secrets.env", "FIRST_TOKEN=0123456789\n")

    without = workspace.run(CONFIG, DEMO, "-k", "row0")
    with_file = workspace.run(CONFIG, DEMO, "--osmosis-secrets-file=secrets.env")

    assert without.ret == 1
    without.stdout.fnmatch_lines(["not rolled out, because secrets are missing"])
    assert with_file.ret == 0
    with_file.assert_outcomes(passed=8)


@pytest.mark.slow
def test_steps_and_rows_are_selected_like_any_test(workspace: Workspace) -> None:
    training(workspace)

    listed = workspace.run(CONFIG, DEMO, "--co", "-q")
    one = workspace.run(f"{FILE}::x[rollout]")
    row = workspace.run(f"{FILE}::x[row6-run0]", DEMO)
    by_name = workspace.run(CONFIG, "-k", "rows")
    unknown = workspace.run(f"{FILE}::x[rolout]")
    without_model = workspace.run(f"{FILE}::x[row6-run0]")

    names = ["rows", "rollout", *(f"row{n}-run0" for n in range(5))]
    assert listed.outlines[:7] == [f"{FILE}::x[{name}]" for name in names]
    for result in (one, row, by_name):
        assert result.ret == 0
        result.assert_outcomes(passed=1, deselected=2 if result is by_name else 0)
    assert unknown.ret == without_model.ret == 4
    unknown.stderr.fnmatch_lines([f"ERROR: {FILE}::x?rolout?: not found: *did you mean '{FILE}::x?rollout?'?"])
    without_model.stderr.fnmatch_lines(["ERROR: *not found: nothing is rolled out without a model to ask*x?slice?'?"])


@pytest.mark.slow
def test_a_preflight_that_could_not_be_measured_ends_with_9(workspace: Workspace) -> None:
    training(workspace)

    result = workspace.run(CONFIG, "--osmosis-base-url=http://127.0.0.1:9/v1")

    assert result.ret == 9
    result.assert_outcomes(passed=2, skipped=5, errors=1)


def test_a_rollout_that_breaks_fails(workspace: Workspace) -> None:
    training(workspace)
    with ChatServer(reply("0"), refusal("no")) as server:
        asked = (f"--osmosis-base-url={server.base_url}", "--osmosis-no-probe")
        result = workspace.run(CONFIG, *asked, "--osmosis-smoke", "--osmosis-smoke-rows=2")

    assert result.ret == 1
    result.assert_outcomes(passed=3, errors=1)


def test_a_broken_training_config_is_a_usage_error(workspace: Workspace) -> None:
    training(workspace)
    workspace.write(FILE, "[experiment]\nrollout = 'mine'\n[training]\nlr = 0\n")

    result = workspace.run(FILE, "--osmosis-n=2")

    assert result.ret == 4
    result.stderr.fnmatch_lines(
        [
            f"ERROR: {FILE}:1: ?experiment? entrypoint: missing; *",
            f"ERROR: {FILE}:4: ?training? lr: must be a finite number above 0, got 0",
            "ERROR: --osmosis-n: does not apply to a training config, *",
        ]
    )


def test_a_preflight_and_an_eval_run_in_one_command(workspace: Workspace) -> None:
    training(workspace, main="import missing_module\n")
    workspace.eval("y", rows=2)

    result = workspace.run(FILE, "configs/eval/y.toml", "--junitxml=junit.xml")

    assert result.ret == 1
    result.assert_outcomes(passed=3, failed=1, skipped=1)
    result.stdout.fnmatch_lines(["  x: preflight of a training config, no model to ask", "  y: demo/arithmetic*"])
    names = {case for case in (workspace.root / "junit.xml").read_text().split('"') if case.startswith("x[")}
    assert names == {"x[rows]", "x[rollout]", "x[slice]"}


@pytest.mark.skipif(find_spec("osmosis_ai") is not None, reason="osmosis_ai is installed")
def test_a_preflight_says_that_the_sdk_was_stood_in_for(workspace: Workspace) -> None:
    training(workspace, main=MAIN.replace("pytest_osmosis", "osmosis_ai.rollout"))

    result = workspace.run(CONFIG)

    assert result.ret == 0
    result.stdout.fnmatch_lines(["osmosis: osmosis_ai is not installed: pytest-osmosis stands in for it*"])


def test_a_preflight_runs_inline_too(workspace: Workspace) -> None:
    training(workspace)

    result = workspace.run(CONFIG, DEMO, "--osmosis-inline")

    assert result.ret == 0
    result.assert_outcomes(passed=7)


@pytest.mark.parametrize("arguments", [["--osmosis-dry-run"], ["--co"]])
def test_listing_a_preflight_loads_no_code(workspace: Workspace, arguments: list[str]) -> None:
    training(workspace, main="raise SystemExit\n", secrets='"FIRST_TOKEN"')

    result = workspace.run(CONFIG, *arguments)

    assert result.ret == 0
    if "--co" not in arguments:
        result.stdout.fnmatch_lines(["  note: 1 secret is missing (x?secrets?)"])
    assert not (workspace.root / ".osmosis").exists()
