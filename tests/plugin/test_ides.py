"""Tests in IDEs: VS Code shows them and runs them under ids of its own, PyCharm passes folders and files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.plugin import vscode_adapter
from tests.plugin.workspaces import Workspace, read_json

ROOT = Path(__file__).parents[2]
COMPANIONS = Path(sys.prefix) / "companions"
LISTED = "osmosis_collect = list"
CONFIG = "configs/eval/x.toml"


class Shown(NamedTuple):
    """A test in VS Code: the id with which it is run, and the place that opens at a click."""

    id: str
    path: str
    line: int


class VSCode:
    """VS Code with the workspace as its folder: it finds the tests, and runs a selection of them."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace

    def run_pytest(self, *args: str) -> pytest.RunResult:
        return self.workspace.run_process("-p", vscode_adapter.__name__, f"--rootdir={self.workspace.root}", *args)

    def discover(self, *pytest_args: str) -> list[Shown]:
        assert self.run_pytest("--collect-only", *pytest_args).ret in (0, 5)
        return [Shown(*each) for each in read_json(self.workspace.root / vscode_adapter.TREE)]

    def run(self, tests: list[Shown], *pytest_args: str) -> dict[str, str]:
        """Run these tests; return their outcomes by id."""
        self.result = self.run_pytest(*pytest_args, *(test.id for test in tests))
        outcomes: dict[str, str] = read_json(self.workspace.root / vscode_adapter.OUTCOMES)
        return outcomes


@pytest.fixture
def vscode(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> VSCode:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    workspace.ini(LISTED)
    return VSCode(workspace)


def named(tests: list[Shown], name: str) -> list[Shown]:
    return [test for test in tests if test.id.split("::")[1].startswith(name)]


@pytest.mark.journey
def test_vscode_runs_the_rows_of_one_eval_that_it_shows(vscode: VSCode, workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {}])
    workspace.eval("y", rows=1)
    toml = workspace.root / CONFIG
    line = next(n for n, text in enumerate(toml.read_text(encoding="utf-8").splitlines(), 1) if "dataset" in text)
    tests = named(vscode.discover(), "x")
    assert tests == [(f"{toml}::x[row{row}-run0]", str(toml), line) for row in range(3)]

    some = vscode.run(tests[1:])

    assert some == {tests[1].id: "failed", tests[2].id: "passed"}
    assert vscode.run(tests) == {tests[0].id: "passed", **some}
    assert len(workspace.run_dirs("x")) == 2
    assert workspace.run_dirs("y") == []


@pytest.mark.slow
def test_vscode_runs_an_eval_that_its_arguments_name(vscode: VSCode, workspace: Workspace) -> None:
    """`python.testing.pytestArgs` may name an eval anywhere; to run tests, VS Code drops positional ones."""
    workspace.ini()
    workspace.eval(rows=2, folder="of_others")
    toml = workspace.write("evals/x.toml", (workspace.root / "of_others" / CONFIG).read_text(encoding="utf-8"))
    workspace.write("data/x.jsonl", '{"user_prompt": "1 + 2", "ground_truth": "3"}\n')
    workspace.write("evals/rewards.py", (workspace.root / "of_others/rewards.py").read_text(encoding="utf-8"))
    dataset = f"--osmosis-dataset={workspace.root}/data/x.jsonl"

    tests = vscode.discover(dataset, f"--osmosis-config={toml}")

    assert [(test.path, test.line) for test in tests] == [(str(toml), 1)]
    assert vscode.run(tests, dataset, f"--osmosis-config={toml}") == {tests[0].id: "passed"}


@pytest.mark.slow
def test_vscode_starts_no_eval_when_it_runs_everything(vscode: VSCode, workspace: Workspace) -> None:
    workspace.eval(rows=[{"score": 0.0}, {}])
    workspace.eval("y", rows=1)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    tests = vscode.discover()
    vscode.run(named(tests, "x"))
    workspace.eval("y", rows=1, secrets={"required": ["NOT_SET"]})  # nothing needs it

    outcomes = vscode.run(tests)

    assert outcomes == {named(tests, "test_python")[0].id: "passed"}
    assert vscode.result.ret == 0
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 0]
    assert workspace.last_failed() == {f"{CONFIG}::x[row0-run0]"}
    assert "row" not in (workspace.root / ".pytest_cache/v/cache/nodeids").read_text(encoding="utf-8")
    vscode.result.stdout.fnmatch_lines(["osmosis: not started: configs/eval/x.toml, configs/eval/y.toml: with*"])


@pytest.mark.slow
def test_node_ids_of_several_evals_start_none_if_evals_are_listed(workspace: Workspace) -> None:
    workspace.ini(LISTED)
    workspace.eval(rows=2)
    workspace.eval("y", rows=1)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    rows = [f"{CONFIG}::x[row{row}-run0]" for row in (0, 1)]
    of_y = "configs/eval/y.toml::y[row0-run0]"

    everything = workspace.run(*rows, of_y, "test_python.py::test_python")
    evals = workspace.run(*rows, of_y)
    one = workspace.run(*rows)

    everything.assert_outcomes(passed=1)
    reason = 'with osmosis_collect = "list", node ids start an eval only if they all belong to it; select one eval'
    lines = [f"*osmosis: not started: configs/eval/x.toml, configs/eval/y.toml: {reason}"]
    everything.stdout.fnmatch_lines(lines)
    assert evals.ret == 4
    evals.stderr.fnmatch_lines([f"ERROR: not started: configs/eval/x.toml, configs/eval/y.toml: {reason}"])
    one.assert_outcomes(passed=2)
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 0]
    workspace.run("configs/eval/y.toml", rows[0]).assert_outcomes(passed=1)  # a whole eval is started
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 1]


@pytest.mark.slow
def test_python_tests_run_beside_an_eval_with_problems(vscode: VSCode, workspace: Workspace) -> None:
    workspace.eval(rows=2)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    tests = vscode.discover()
    workspace.eval(rows=2, experiment={"model_path": "nowhere/model"})

    assert vscode.run(tests) == {named(tests, "test_python")[0].id: "passed"}
    alone = vscode.run_pytest(*(test.id for test in named(tests, "x")))
    assert alone.ret == 4
    alone.stderr.fnmatch_lines(['*configs/eval/x.toml*"nowhere"*'])
    shown = vscode.run_pytest("--collect-only")
    shown.stdout.fnmatch_lines(['osmosis: not listed: *"nowhere"*'])


@pytest.mark.slow
def test_pycharm_runs_the_toml_of_a_run_configuration_and_no_eval_of_a_folder(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs pytest with teamcity-messages (JetBrains/intellij-community, `_jb_pytest_runner.py`)."""
    if not (COMPANIONS / "teamcity").is_dir():
        pytest.skip(f"{COMPANIONS} lacks teamcity-messages: make setup")
    monkeypatch.setenv("PYTHONPATH", str(COMPANIONS))
    monkeypatch.setenv("TEAMCITY_VERSION", "LOCAL")
    workspace.ini(LISTED)
    workspace.eval(rows=[{}, {"score": 0.0}])
    workspace.write("test_python.py", "def test_python():\n    pass\n")

    def shown(path: Path) -> list[tuple[str, str]]:
        result = workspace.run_process(str(path), "--no-header", "--no-summary", "-q")
        return sorted(re.findall(r"##teamcity\[test(\w+) .*?name='([^']*)'\]", result.stdout.str()))

    assert shown(workspace.root) == [(what, "test_python.test_python") for what in ("Finished", "Started")]
    assert not (workspace.root / ".osmosis").exists()
    passed, failed = (f"configs.eval.x_toml.x(row{row}-run0)" for row in (0, 1))
    of_toml = shown(workspace.root / CONFIG)
    assert [each for each in of_toml if each[0] == "Started"] == [("Started", passed), ("Started", failed)]
    assert ("Finished", failed) in of_toml
    assert [row["runs"][0]["passed"] for row in workspace.results()["rows"]] == [True, False]


@pytest.mark.slow
def test_the_launch_json_of_the_docs_runs_one_row_in_the_process_of_the_debugger(workspace: Workspace) -> None:
    page = (ROOT / "docs/how-to/gate-in-ci.md").read_text(encoding="utf-8")
    (launch,) = re.findall(r"^```json file=.vscode/launch.json\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (debugging,) = json.loads(launch)["configurations"]
    assert (debugging["module"], debugging["subProcess"]) == ("pytest", False)
    agent = (
        "import os\nasync def rollout(ctx):\n    await ctx.chat(ctx.prompt)\n    print('rolled out in', os.getpid())\n"
    )
    workspace.write("agent.py", agent)
    workspace.eval("sums", agent={"agent": "agent:rollout"})
    result = workspace.run(*(word.replace("${input:row}", "2") for word in debugging["args"]), "-rP", exits=0)
    result.stdout.fnmatch_lines(["*sums[[]row2-run0[]]*"])
    assert [event["row"] for event in workspace.events("rollout", "sums")] == [2]
    assert f"rolled out in {os.getpid()}" in result.stdout.str()
