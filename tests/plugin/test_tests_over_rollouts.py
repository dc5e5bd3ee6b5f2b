"""Tests over rollouts: on reference solutions offline, on a model's answers with --osmosis-source=model."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from typing import Any

import pytest

from tests.plugin.workspaces import DEADLINE_S, Row, Workspace, read_json
from tests.servers import ChatServer, answered, reply, status

MODEL = "--osmosis-source=model"
MARK = '@pytest.mark.osmosis_eval("configs/eval/x.toml"'
TESTS = f"""
import pytest

from rewards import score

{MARK}, limit=3, n=2)
def test_answer(rollout):
    assert rollout.solution_str == rollout.ground_truth
    assert rollout.messages[-1] == {{"role": "assistant", "content": rollout.solution_str}}
    assert rollout.row["user_prompt"] == rollout.messages[0]["content"]
    assert (rollout.usage is None) == (rollout.source == "reference")

{MARK}, limit=4)
def test_scores(rollout):
    assert dict(rollout.scores) == {{"rewards:score": score(rollout.solution_str, rollout.ground_truth, rollout.row)}}

def test_without_a_rollout():
    pass
"""
IDS = [
    *(f"test_answer[row{row}-run{run}]" for row in range(3) for run in range(2)),
    *(f"test_scores[row{row}-run0]" for row in range(4)),
    "test_without_a_rollout",
]


def product(body: Mapping[str, Any]) -> str:
    a, b = map(int, re.findall(r"\d+", body["messages"][-1]["content"]))
    return str(a * b)


REFERENCES: list[Row] = [{"solution_str": str(index * 2)} for index in range(5)]
"""Rows whose reference solution is their ground truth."""


def make(workspace: Workspace, tests: str = TESTS, *, rows: list[Row] = REFERENCES, **tables: Any) -> None:
    workspace.ini("pythonpath = .", "addopts = --strict-markers")
    workspace.eval(rows=rows, **tables)
    workspace.write("tests/test_x.py", tests)


def at(server: ChatServer) -> dict[str, Any]:
    return {"base_url": server.base_url}


def outcomes(result: pytest.RunResult) -> dict[str, str]:
    pairs = re.findall(r"^(PASSED|FAILED|ERROR|XFAIL) \S+?::(\S+)", result.stdout.str(), re.MULTILINE)
    return {name: outcome for outcome, name in pairs}


# -- one file, two sources --------------------------------------------------------------------------------


@pytest.mark.journey
def test_the_same_tests_run_offline_and_over_a_model_that_rolls_out_each_run_once(workspace: Workspace) -> None:
    with ChatServer(answered(product)) as server:
        make(workspace, model=at(server), gate={"pass_rate": ">= 0.99"}, secrets={"required": ["NOT_SET"]})

        offline = workspace.run("tests", "-rA", exits=0)

        assert sorted(outcomes(offline)) == sorted(IDS)
        offline.assert_outcomes(passed=11)
        assert "osmosis" not in offline.stdout.str().replace("osmosis-0.1.0", "")
        assert (len(server.requests), workspace.run_dirs("x-tests")) == (0, [])

        make(workspace, model=at(server), gate={"pass_rate": ">= 0.99"})
        online = workspace.run("tests", MODEL, "-rA", exits=0)
        assert outcomes(online) == outcomes(offline)
        assert len(server.requests) == 7 + 1  # 3 rows x 2 runs, the first run of a fourth, and the probe
    online.stdout.fnmatch_lines("""
        osmosis: x-tests (configs/eval/x.toml)
          7 rollouts of 4 rows, 1 in flight*
          used by 10 tests; gates are not evaluated
    """)
    (results,) = [read_json(folder / "results.json") for folder in workspace.run_dirs("x-tests")]
    assert (results["partial"], results["gates"], results["summary"]["total_runs"]) == (False, [], 7)


def test_a_failure_shows_the_conversation_and_the_command_that_repeats_it(workspace: Workspace) -> None:
    with ChatServer(reply("0"), status(400)) as server:
        make(workspace, model=at(server))

        result = workspace.run("tests", MODEL, "--osmosis-no-probe", "-rA", "-k", "row1-run0 or row2-run0", exits=1)

        assert outcomes(result) == {
            "test_answer[row1-run0]": "FAILED",
            "test_scores[row1-run0]": "PASSED",
            "test_answer[row2-run0]": "ERROR",
            "test_scores[row2-run0]": "ERROR",
        }
        assert len(server.requests) == 2
    said = result.stdout
    said.fnmatch_lines(
        ["  user: What is 1 ? 2?", "  assistant: 0", "dataset row: data/x.jsonl:2", f"run it again: pytest *{MODEL}*"]
    )
    said.fnmatch_lines_random(
        ["model: *400*", f"run it again: pytest 'tests/test_x.py::test_answer?row1-run0?' *{MODEL}*"]
    )


def test_rollouts_run_ahead_of_the_tests_and_session_fixtures_are_torn_down(workspace: Workspace) -> None:
    tests = f"""
import pathlib, time, pytest

@pytest.fixture(scope="session", autouse=True)
def shared():
    yield
    raise RuntimeError("torn down")

{MARK}, rows="all")
def test_first_waits_for_all(rollout):
    end = time.monotonic() + {DEADLINE_S}
    while len(list(pathlib.Path(".osmosis/runs").glob("*/journal.jsonl"))) == 0 or (
        sum('"ev":"rollout"' in line for line in next(pathlib.Path(".osmosis/runs").glob("*/journal.jsonl")).open()) < 5
    ):
        assert time.monotonic() < end
        time.sleep(0.01)
"""
    make(workspace, tests, evaluation={"batch_size": 2})

    workspace.run("tests", MODEL).assert_outcomes(passed=5, errors=1)


def test_nothing_is_rolled_out_for_tests_that_will_not_run(workspace: Workspace) -> None:
    never = ("skip", "skipif('True', reason='no')", "skipif('nonsense', reason='breaks')", "xfail(run=False)")
    marks = ("usefixtures()", "usefixtures()", *never)
    tests = [
        f"@pytest.mark.{mark}\n{MARK}, rows='{min(row, 4)}')\ndef test_{row}(rollout): ...\n"
        for row, mark in enumerate(marks)
    ]
    with ChatServer(reply("0")) as server:
        make(workspace, "import pytest\n" + "".join(tests), model=at(server))

        result = workspace.run("tests", MODEL, "--osmosis-no-probe", "--deselect=tests/test_x.py::test_0")

        result.assert_outcomes(passed=1, skipped=2, xfailed=1, deselected=1, errors=1)
        assert len(server.requests) == 1


def test_coroutines_get_rollouts(workspace: Workspace) -> None:
    tests = f"""
import pytest

{MARK}, limit=2)
@pytest.mark.asyncio
async def test_asyncio(rollout):
    assert rollout.scores["rewards:score"] == 1.0

{MARK}, limit=2)
@pytest.mark.anyio
async def test_anyio(rollout, anyio_backend_name):
    assert rollout.scores["rewards:score"] == 1.0

@pytest.fixture
def anyio_backend():
    return "asyncio"
"""
    make(workspace, tests)
    workspace.ini("pythonpath = .", "asyncio_default_fixture_loop_scope = function")
    words = (sys.executable, "-mpytest", "tests", "-Werror")

    for source in ("--osmosis-source=reference", MODEL):
        workspace.pytester.run(*words, source, timeout=DEADLINE_S).assert_outcomes(passed=4)


def test_listing_dry_runs_and_usage_errors_ask_no_model(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(reply("0")) as server:
        make(workspace, model=at(server), scoring={"eval_fns": ["nowhere:f"]}, secrets={"required": ["NOT_SET"]})
        listed = [workspace.run("tests", *source, "--co", "-q").outlines for source in ([MODEL], [])]
        unset = workspace.run("tests", MODEL, exits=4)
        monkeypatch.setenv("NOT_SET", "set-for-the-dry-run")
        dry = workspace.run("tests", MODEL, "--osmosis-dry-run")
        unloaded = workspace.run("tests", MODEL, exits=4)
        ids = [[line for line in lines if "::" in line] for lines in listed]
        assert ids == [[f"tests/test_x.py::{name}" for name in IDS]] * 2
        dry.stdout.fnmatch_lines(["  7 rollouts of 4 rows, *", "*11 not run (dry run)*"])
        unset.stderr.fnmatch_lines(["ERROR: secret NOT_SET: missing or empty*"])
        unloaded.stderr.fnmatch_lines(['*no module "nowhere"*'])
        assert (len(server.requests), workspace.run_dirs("x-tests")) == (0, [])


# -- the marker -------------------------------------------------------------------------------------------


def test_ids_with_markers_of_classes_and_modules_and_with_other_parameters(workspace: Workspace) -> None:
    tests = f"""
import pytest

pytestmark = {MARK[1:]}, rows="2")

@pytest.mark.parametrize("style", ["a", "b"])
def test_styles(rollout, style):
    assert rollout.row_index == 2

def test_plain():
    pass

@pytest.mark.osmosis_eval("configs/eval/x.toml", offset=3, limit=1)
class TestMany:
    def test_of_class(self, rollout):
        assert rollout.row_index == 3

    {MARK}, rows="4", n=2)
    def test_nearest(self, rollout):
        assert (rollout.row_index, rollout.run_index) in [(4, 0), (4, 1)]

@pytest.fixture
def answer(rollout):
    return rollout.solution_str

def test_by_a_fixture(answer):
    assert answer == "4"
"""
    make(workspace, tests)

    result = workspace.run("tests", "-rA", exits=0)

    assert list(outcomes(result)) == [
        "test_styles[row2-run0-a]",
        "test_styles[row2-run0-b]",
        "test_plain",
        "TestMany::test_of_class[row3-run0]",
        "TestMany::test_nearest[row4-run0]",
        "TestMany::test_nearest[row4-run1]",
        "test_by_a_fixture[row2-run0]",
    ]


def test_a_mistake_in_a_config_names_the_test_that_requested_it(workspace: Workspace) -> None:
    make(workspace, evaluation={"batch_sise": 3})

    workspace.run("tests", MODEL, exits=2).stdout.fnmatch_lines("""
        configs/eval/x.toml:*batch_sise: unknown key, did you mean "batch_size"?*
        *tests/test_x.py:6: test_answer)
    """)


def test_a_row_without_a_reference_is_skipped_and_a_dataset_without_one_an_error(
    workspace: Workspace,
) -> None:
    tests = f"""
import pytest

{MARK}, rows="0-1")
def test_some(rollout):
    pass

{MARK}, rows="1-2")
def test_none(rollout):
    pass
"""
    make(workspace, tests, rows=[{"solution_str": "0"}, {"solution_str": " "}, {}])
    workspace.write("tests/test_y.py", "def test_y(rollout): ...\n")

    result = workspace.run("tests", "-rs", exits=1)

    result.assert_outcomes(passed=1, skipped=1, errors=3)
    result.stdout.fnmatch_lines(['the fixture "rollout" needs a marker that names the eval: @pytest.mark.osmosis_*'])
    result.stdout.fnmatch_lines("""
        data/x.jsonl:3: the row has no reference solution *, and no other selected row has one; add one *
        SKIPPED * data/x.jsonl:2: the row has no reference solution (column "solution_str")
    """)


def test_test_evals_and_named_evals_run_one_after_the_other(workspace: Workspace) -> None:
    with ChatServer(reply("0")) as server:
        make(workspace, model=at(server), gate={"pass_rate": ">= 0.5"})
        offline = workspace.run("tests", "configs/eval/x.toml", "--osmosis-no-probe")
        assert (len(server.requests), workspace.run_dirs("x-tests")) == (5, []), "the tests use references"
        result = workspace.run("tests", "configs/eval/x.toml", MODEL, "--osmosis-no-probe")
        assert len(server.requests) == 5 + 7 + 5
        assert server.max_in_flight == 1
    offline.assert_outcomes(passed=11 + 5 + 1)
    result.assert_outcomes(passed=5 + 2 + 5 + 1, failed=4)
    assert [len(workspace.run_dirs(name)) for name in ("x-tests", "x-2*")] == [1, 2]
    assert workspace.last_failed() == {
        f"tests/test_x.py::test_answer[row{row}-run{run}]" for row in (1, 2) for run in range(2)
    }


def test_inline_the_agent_of_a_test_eval_runs_in_pytests_process(workspace: Workspace) -> None:
    tests = f"import os, pytest\n{MARK})\ndef test_x(rollout):\n    assert rollout.solution_str == str(os.getpid())\n"
    make(workspace, tests, agent={"agent": "agent:rollout"})
    agent = "import os\n\nasync def rollout(ctx):\n    return [{'role': 'assistant', 'content': str(os.getpid())}]\n"
    workspace.write("agent.py", agent)

    workspace.run("tests", MODEL, "--osmosis-inline").assert_outcomes(passed=5)
    workspace.run("tests", MODEL).assert_outcomes(failed=5)


def test_only_the_command_line_selects_models_as_source(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    with ChatServer(reply("0")) as server:
        make(workspace, model=at(server))
        workspace.ini("pythonpath = .", f"addopts = {MODEL}")

        from_addopts = workspace.run("tests", exits=0)
        monkeypatch.setenv("PYTEST_OSMOSIS_SOURCE", "model")
        from_environment = workspace.run("tests", exits=2)

        assert len(server.requests) == 0
    from_addopts.stdout.fnmatch_lines([f"osmosis: {MODEL}: ignored, because only addopts names it; *"])
    from_environment.stdout.fnmatch_lines(
        ["PYTEST_OSMOSIS_SOURCE: cannot turn on requests to models (they cost money); *"]
    )


def test_each_test_gets_a_rollout_that_no_hook_and_no_other_test_has_changed(workspace: Workspace) -> None:
    part = {"type": "text", "text": "?"}
    tests = f"""
import pytest

@pytest.mark.parametrize("time", [1, 2])
{MARK}, limit=1)
def test_x(rollout, time):
    assert rollout.messages[0]["content"] == [{part}]
    assert rollout.row["tags"] == ["a"]
    assert rollout.info == {{"notes": ["n"]}}
    rollout.messages[0]["content"].clear()
    rollout.row["tags"].clear()
    rollout.info["notes"].clear()
"""
    spoils = "def pytest_osmosis_rollout_finished(messages):\n    messages[0]['content'].clear()\n"
    workspace.write("conftest.py", spoils)
    agent = "from pytest_osmosis import AgentWorkflow, AgentWorkflowOutput\nclass Agent(AgentWorkflow):\n"
    agent += "    async def run(self, ctx):\n        answer = {'role': 'assistant', 'content': '0'}\n"
    agent += "        return AgentWorkflowOutput([*ctx.prompt, answer], info={'notes': ['n']})\n"
    workspace.write("agent.py", agent)
    row = {"user_prompt": None, "messages": [{"role": "user", "content": [part]}], "tags": ["a"]}
    make(workspace, tests, rows=[row], agent={"agent": "agent:Agent"})

    workspace.run("tests", MODEL, "--osmosis-no-probe").assert_outcomes(passed=2)
