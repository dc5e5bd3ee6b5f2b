"""Tests in IDEs: VS Code shows them and runs them under ids of its own, PyCharm passes folders and files."""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow
import pyarrow.parquet
import pytest

from tests.plugin import vscode_adapter
from tests.plugin.workspaces import PLAIN_AND_XDIST, Workspace, read_json

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


@pytest.mark.slow
def test_vscode_shows_and_starts_no_eval_by_default(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.ini()
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    workspace.write("rewards.py", "open('loaded', 'w')\n")
    workspace.eval(rows=2)

    tests = vscode.discover()

    assert tests == [(f"{workspace.root}/test_python.py::test_python", f"{workspace.root}/test_python.py", 1)]
    assert not (workspace.root / "loaded").exists()
    assert not (workspace.root / ".osmosis").exists()


@pytest.mark.slow
def test_vscode_shows_a_row_at_its_line_in_the_dataset(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=2)
    data = workspace.root / "data/x.jsonl"
    data.write_text("\n" + data.read_text(encoding="utf-8"), encoding="utf-8")

    assert vscode.discover() == [(f"{data}::x[row{row}-run0]", str(data), row + 2) for row in (0, 1)]


@pytest.mark.slow
def test_vscode_shows_a_row_of_several_lines_where_it_begins(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval("table", data={"path": "data/table.csv"})
    workspace.eval("array", data={"path": "data/array.json"})
    table = io.StringIO()
    csv.writer(table).writerows([["user_prompt", "ground_truth"], ["What is\n1 + 2?", "3"], ["4 + 5", "9"]])
    workspace.write("data/table.csv", table.getvalue())
    rows = [{"user_prompt": "1 + 2", "ground_truth": "3"}, {"user_prompt": "4 + 5", "ground_truth": "9"}]
    workspace.write("data/array.json", json.dumps(rows, indent=2))

    places = [(Path(test.path).name, test.line) for test in vscode.discover()]

    assert places == [("array.json", 2), ("array.json", 6), ("table.csv", 2), ("table.csv", 4)]


@pytest.mark.slow
def test_vscode_shows_a_row_without_a_line_at_its_toml(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(data={"path": "data/x.parquet"})
    rows = [{"user_prompt": "1 + 2", "ground_truth": "3"}, {"user_prompt": "4 + 5", "ground_truth": "9"}]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), workspace.root / "data/x.parquet")
    toml = workspace.root / CONFIG

    tests = vscode.discover()

    assert tests == [(f"{toml}::x[row{row}-run0]", str(toml), 1) for row in (0, 1)]
    assert vscode.run(tests[1:]) == {tests[1].id: "passed"}


@pytest.mark.journey
def test_vscode_runs_the_rows_of_one_eval_that_it_shows(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=[{}, {"score": 0.0}, {}])
    workspace.eval("y", rows=1)
    tests = named(vscode.discover(), "x")

    some = vscode.run(tests[1:])

    assert some == {tests[1].id: "failed", tests[2].id: "passed"}
    assert vscode.run(tests) == {tests[0].id: "passed", **some}
    assert len(workspace.run_dirs("x")) == 2
    assert workspace.run_dirs("y") == []


@pytest.mark.slow
def test_vscode_runs_an_eval_that_its_arguments_name(vscode: VSCode) -> None:
    """`python.testing.pytestArgs` may name an eval anywhere; to run tests, VS Code drops positional ones."""
    workspace = vscode.workspace
    workspace.ini()
    workspace.eval(rows=2, folder="of_others")
    toml = workspace.write("evals/x.toml", (workspace.root / "of_others" / CONFIG).read_text(encoding="utf-8"))
    workspace.write("data/x.jsonl", '{"user_prompt": "1 + 2", "ground_truth": "3"}\n')
    workspace.write("evals/rewards.py", (workspace.root / "of_others/rewards.py").read_text(encoding="utf-8"))
    dataset = f"--osmosis-dataset={workspace.root}/data/x.jsonl"

    tests = vscode.discover(dataset, f"--osmosis-config={toml}")

    assert [test.path for test in tests] == [f"{workspace.root}/data/x.jsonl"]
    assert vscode.run(tests, dataset, f"--osmosis-config={toml}") == {tests[0].id: "passed"}


@pytest.mark.slow
@pytest.mark.parametrize("with_python", [True, False])
def test_vscode_starts_no_eval_when_it_runs_everything(vscode: VSCode, with_python: bool) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=2, secrets={"required": ["NOT_SET"]})  # nothing needs it
    workspace.eval("y", rows=1)
    if with_python:
        workspace.write("test_python.py", "def test_python():\n    pass\n")
    tests = vscode.discover()

    outcomes = vscode.run(tests)

    assert outcomes == {test.id: "passed" if "test_python" in test.id else "skipped" for test in tests}
    assert vscode.result.ret == 0
    assert not (workspace.root / ".osmosis").exists()
    vscode.result.stdout.fnmatch_lines(["osmosis: not started: configs/eval/x.toml, configs/eval/y.toml: with*"])


@pytest.mark.slow
def test_node_ids_of_several_evals_start_none_if_evals_are_listed(workspace: Workspace) -> None:
    workspace.ini(LISTED)
    workspace.eval(rows=2)
    workspace.eval("y", rows=1)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    rows = [f"data/x.jsonl::x[row{row}-run0]" for row in (0, 1)]

    everything = workspace.run(*rows, "data/y.jsonl::y[row0-run0]", "test_python.py::test_python", "-rs")
    one = workspace.run(*rows)

    everything.assert_outcomes(passed=1, skipped=3)
    reason = 'not started: with osmosis_collect = "list", node ids start an eval only if they all belong to it'
    everything.stdout.fnmatch_lines([f"SKIPPED [[]2] configs/eval/x.toml: {reason}"])
    one.assert_outcomes(passed=2)
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tables", "problem"),
    [({"experiment": {"model_path": "nowhere/model"}}, '"nowhere"'), ({"data": {"limit": -1}}, "limit: unknown key")],
)
def test_python_tests_run_beside_an_eval_with_problems(vscode: VSCode, tables: Any, problem: str) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=2)
    workspace.write("test_python.py", "def test_python():\n    pass\n")
    tests = vscode.discover()
    workspace.eval(rows=2, **tables)

    assert vscode.run(tests) == {named(tests, "test_python")[0].id: "passed"}
    vscode.result.stdout.fnmatch_lines([f"osmosis: not listed: *{problem}*"])
    alone = vscode.run_pytest(*(test.id for test in named(tests, "x")))
    assert alone.ret == 4
    alone.stderr.fnmatch_lines([f"*configs/eval/x.toml*{problem}*"])


@pytest.mark.slow
def test_a_selection_of_evals_that_all_have_problems_is_an_error(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=1)
    workspace.eval("y", rows=1)
    workspace.write("test_python.py", "def test_python():\n    raise SystemExit('not asked for')\n")
    tests = [*named(vscode.discover(), "x"), *named(vscode.discover(), "y")]
    for name in ("x", "y"):
        workspace.eval(name, rows=1, experiment={"model_path": "nowhere/model"})

    result = vscode.run_pytest(*(test.id for test in tests))

    assert result.ret == 4
    result.stderr.fnmatch_lines(['*osmosis: not listed: *"nowhere"*'])


@pytest.mark.slow
def test_last_failed_survives_a_run_of_everything(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=[{"score": 0.0}, {}])
    workspace.eval("y", rows=1)
    tests = vscode.discover()
    vscode.run(named(tests, "x"))

    vscode.run(tests)

    assert workspace.last_failed() == {f"{CONFIG}::x[row0-run0]"}
    assert "row" not in (workspace.root / ".pytest_cache/v/cache/nodeids").read_text(encoding="utf-8")


@pytest.mark.slow
def test_whole_evals_among_the_arguments_are_started(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=1)
    workspace.eval("y", rows=1)
    workspace.eval("z", rows=1)

    files = vscode.run_pytest(CONFIG, "configs/eval/y.toml", "configs/eval/z.toml::z[row0-run0]")

    files.assert_outcomes(passed=2, skipped=1)
    assert [len(workspace.run_dirs(name)) for name in "xyz"] == [1, 1, 0]


@pytest.mark.slow
def test_node_ids_of_several_evals_start_them_unless_evals_are_listed(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.ini()
    workspace.eval(rows=1)
    workspace.eval("y", rows=1)

    vscode.run_pytest(f"{CONFIG}::x[row0-run0]", "configs/eval/y.toml::y[row0-run0]").assert_outcomes(passed=2)


@pytest.mark.slow
def test_a_dataset_of_two_evals_of_one_name_is_ambiguous(vscode: VSCode) -> None:
    workspace = vscode.workspace
    workspace.eval(rows=1)
    workspace.eval(rows=1, folder="other")

    vscode.run_pytest("data/x.jsonl::x[row0-run0]").assert_outcomes(passed=1)
    result = vscode.run_pytest("data/x.jsonl::x[row0-run0]", "--osmosis-dataset=data/x.jsonl")

    assert result.ret == 4
    both = "configs/eval/x.toml and other/configs/eval/x.toml"
    result.stderr.fnmatch_lines([f"*data/x.jsonl::x[[]...]: the rows of {both} have this id; name one of them*"])


# -- PyCharm --------------------------------------------------------------------------------------------------


@pytest.fixture
def pycharm(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A workspace with the plugin that PyCharm brings, teamcity-messages."""
    if not (COMPANIONS / "teamcity").is_dir():
        pytest.skip(f"{COMPANIONS} lacks teamcity-messages: make setup")
    monkeypatch.setenv("PYTHONPATH", str(COMPANIONS))
    monkeypatch.setenv("TEAMCITY_VERSION", "LOCAL")
    workspace.ini(LISTED)
    return workspace


def pycharm_run(workspace: Workspace, *args: str) -> list[tuple[str, str]]:
    """Run pytest as PyCharm does (JetBrains/intellij-community, `_jb_pytest_runner.py`); return what it would show."""
    result = workspace.run_process(*args, "--no-header", "--no-summary", "-q")
    found = re.findall(r"##teamcity\[test(\w+) .*?name='([^']*)'\]", result.stdout.str())
    return sorted(found)


@pytest.mark.slow
def test_pycharm_starts_no_eval_when_it_runs_a_folder(pycharm: Workspace) -> None:
    pycharm.eval(rows=2)
    pycharm.write("test_python.py", "def test_python():\n    pass\n")

    shown = pycharm_run(pycharm, str(pycharm.root))

    assert shown == [("Finished", "test_python.test_python"), ("Started", "test_python.test_python")]
    assert not (pycharm.root / ".osmosis").exists()


@pytest.mark.slow
@PLAIN_AND_XDIST
def test_pycharm_runs_the_toml_of_a_run_configuration(pycharm: Workspace) -> None:
    pycharm.eval(rows=[{}, {"score": 0.0}])
    passed, failed = (f"configs.eval.x_toml.x(row{row}-run0)" for row in (0, 1))

    shown = pycharm_run(pycharm, str(pycharm.root / CONFIG))

    assert [each for each in shown if each[0] == "Started"] == [("Started", passed), ("Started", failed)]
    assert ("Finished", failed) in shown
    assert [row["runs"][0]["passed"] for row in pycharm.results()["rows"]] == [True, False]
