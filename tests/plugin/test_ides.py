"""Tests in IDEs: VS Code shows them and runs them under ids of its own, PyCharm passes folders and files."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.plugin.workspaces import Workspace, read_json

ROOT = Path(__file__).parents[2]
COMPANIONS = Path(sys.prefix) / "companions"
LISTED = "osmosis_collect = list"
CONFIG = "configs/eval/x.toml"
PYTHON = "def test_python():\n    pass\n"
SEEING = """
import json, pathlib

def pytest_collection_finish(session):
    seen = []
    for item in session.items:
        assert item.parent.path.is_file() and (".py" in item.nodeid or not hasattr(item, "callspec"))
        id = "::".join([str(item.path), *item.nodeid.split("::")[1:]])
        seen.append([id, str(item.path), item.location[1] + 1])
    pathlib.Path("seen.json").write_text(json.dumps(seen))
"""
"""A plugin that notes what VS Code's Python extension reads of items: for each test the id with which it is run, and
the place that opens at a click. Its discovery breaks where an assertion fails here (microsoft/vscode-python, commit
757def8, python_files/vscode_pytest/__init__.py).
"""


@pytest.fixture
def listing(workspace: Workspace) -> Workspace:
    """A workspace that lists evals, and whose plugin `seeing` notes what VS Code sees."""
    workspace.ini(LISTED)
    workspace.write("seeing.py", SEEING)
    return workspace


def seen(workspace: Workspace, name: str, *words: str) -> list[list[object]]:
    """Return what VS Code shows of the tests whose names begin so."""
    root = f"--rootdir={workspace.root}"
    assert workspace.run("-pseeing", root, "--collect-only", *words).ret in (0, 5)
    return [each for each in read_json(workspace.root / "seen.json") if each[0].split("::")[1].startswith(name)]


def click(workspace: Workspace, tests: list[list[object]], *words: str) -> pytest.RunResult:
    """Run these tests as VS Code does."""
    return workspace.run(f"--rootdir={workspace.root}", *words, *(str(id) for id, _, _ in tests))


@pytest.mark.journey
def test_vscode_runs_the_rows_of_one_eval_that_it_shows(listing: Workspace) -> None:
    listing.eval(rows=[{}, {"score": 0.0}, {}])
    listing.eval("y", rows=1)
    toml = listing.root / CONFIG
    line = next(n for n, text in enumerate(toml.read_text(encoding="utf-8").splitlines(), 1) if "dataset" in text)
    tests = seen(listing, "x")
    assert tests == [[f"{toml}::x[row{row}-run0]", str(toml), line] for row in range(3)]

    click(listing, tests[1:]).assert_outcomes(failed=1, passed=1)
    click(listing, tests).assert_outcomes(failed=1, passed=2)

    assert [len(listing.run_dirs(name)) for name in "xy"] == [2, 0]


def test_vscode_runs_an_eval_that_its_arguments_name(listing: Workspace) -> None:
    """`python.testing.pytestArgs` may name an eval anywhere; to run tests, VS Code drops positional ones."""
    listing.ini()
    listing.eval(rows=2, folder="of_others")
    toml = listing.write("evals/x.toml", (listing.root / "of_others" / CONFIG).read_text(encoding="utf-8"))
    listing.write("data/x.jsonl", '{"user_prompt": "1 + 2", "ground_truth": "3"}\n')
    listing.write("evals/rewards.py", (listing.root / "of_others/rewards.py").read_text(encoding="utf-8"))
    named = (f"--osmosis-dataset={listing.root}/data/x.jsonl", f"--osmosis-config={toml}")

    tests = seen(listing, "x", *named)

    assert [place for _, *place in tests] == [[str(toml), 1]]
    click(listing, tests, *named).assert_outcomes(passed=1)


def test_vscode_starts_no_eval_when_it_runs_everything(listing: Workspace) -> None:
    listing.eval(rows=[{"score": 0.0}, {}])
    listing.eval("y", rows=1)
    listing.write("test_python.py", PYTHON)
    click(listing, seen(listing, "x"))
    everything = seen(listing, "")
    listing.eval("y", rows=1, secrets={"required": ["NOT_SET"]})  # nothing needs it
    result = click(listing, everything)
    result.assert_outcomes(passed=1)
    assert result.ret == 0
    assert [len(listing.run_dirs(name)) for name in "xy"] == [1, 0]
    assert listing.last_failed() == {f"{CONFIG}::x[row0-run0]"}
    assert "row" not in (listing.root / ".pytest_cache/v/cache/nodeids").read_text(encoding="utf-8")
    result.stdout.fnmatch_lines(["osmosis: not started: configs/eval/x.toml, configs/eval/y.toml: with*"])


def test_node_ids_of_several_evals_start_none_if_evals_are_listed(workspace: Workspace) -> None:
    workspace.ini(LISTED)
    workspace.eval(rows=2)
    workspace.eval("y", rows=1)
    workspace.write("test_python.py", PYTHON)
    rows = [f"{CONFIG}::x[row{row}-run0]" for row in (0, 1)]
    of_y = "configs/eval/y.toml::y[row0-run0]"

    everything = workspace.run(*rows, of_y, "test_python.py::test_python")
    evals = workspace.run(*rows, of_y, exits=4)
    one = workspace.run(*rows)

    everything.assert_outcomes(passed=1)
    reason = 'with osmosis_collect = "list", node ids start an eval only if they all belong to it; select one eval'
    lines = [f"*osmosis: not started: configs/eval/x.toml, configs/eval/y.toml: {reason}"]
    everything.stdout.fnmatch_lines(lines)
    evals.stderr.fnmatch_lines([f"ERROR: not started: configs/eval/x.toml, configs/eval/y.toml: {reason}"])
    one.assert_outcomes(passed=2)
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 0]
    workspace.run("configs/eval/y.toml", rows[0]).assert_outcomes(passed=1)  # a whole eval is started
    assert [len(workspace.run_dirs(name)) for name in "xy"] == [1, 1]


def test_python_tests_run_beside_an_eval_with_problems(listing: Workspace) -> None:
    listing.eval(rows=2)
    listing.write("test_python.py", PYTHON)
    everything, rows = seen(listing, ""), seen(listing, "x")
    listing.eval(rows=2, experiment={"model_path": "nowhere/model"})

    click(listing, everything).assert_outcomes(passed=1)
    alone = click(listing, rows)
    assert alone.ret == 4
    alone.stderr.fnmatch_lines(['*configs/eval/x.toml*"nowhere"*'])
    click(listing, [], "--collect-only").stdout.fnmatch_lines(['osmosis: not listed: *"nowhere"*'])


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
    workspace.write("test_python.py", PYTHON)

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
