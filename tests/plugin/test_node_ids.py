"""Node ids of runs: `configs/eval/x.toml::x[row3-run1]`."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace

CONFIG = "--osmosis-config=configs/eval/x.toml"


def listed(result: pytest.RunResult) -> list[str]:
    """Return the ids that `--co -q` prints."""
    return [line for line in result.outlines if "::" in line]


def test_an_id_depends_on_row_and_run_alone(plain_workspace: Workspace) -> None:
    plain_workspace.eval(data={"rows": "1-2"})

    ids = listed(plain_workspace.run(CONFIG, "--osmosis-n=2", "--co", "-q"))

    assert ids == [f"configs/eval/x.toml::x[row{row}-run{run}]" for row in (1, 2) for run in (0, 1)]
    assert listed(plain_workspace.run(CONFIG, "--osmosis-n=2", "--osmosis-batch-size=7", "--co", "-q")) == ids


def test_an_id_selects_its_run_alone(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {}], evaluation={"n": 2}, gate={"pass_rate": ">= 0.1"})

    result = workspace.run("configs/eval/x.toml::x[row1-run1]")

    result.assert_outcomes(failed=1, skipped=1)
    assert result.ret == 1
    assert [(run["row"], run["run"]) for run in workspace.events("start")] == [(1, 1)]
    assert workspace.results()["partial"] is True


def test_ids_of_several_evals_run_in_one_session(workspace: Workspace) -> None:
    workspace.eval("x", evaluation={"batch_size": 4})
    workspace.eval("y")
    ids = ["x.toml::x[row2-run0]", "x.toml::x[row0-run0]", "y.toml::y[row1-run0]"]

    result = workspace.run(*(f"configs/eval/{name}" for name in ids))

    result.assert_outcomes(passed=3)
    assert [row["row_index"] for row in workspace.results("x")["rows"]] == [0, 2]
    assert [row["row_index"] for row in workspace.results("y")["rows"]] == [1]


def test_an_id_outside_the_selection_is_collected(workspace: Workspace) -> None:
    workspace.eval(rows=5, data={"rows": "0"})

    result = workspace.run("configs/eval/x.toml::x[row4-run0]")

    result.assert_outcomes(passed=1)
    assert [row["row_index"] for row in workspace.results()["rows"]] == [4]


def test_unknown_ids_are_usage_errors(plain_workspace: Workspace) -> None:
    plain_workspace.eval()
    unknown = ["row3-run0", "row0-run1", "row99999999999999999999-run0"]

    result = plain_workspace.run(*(f"configs/eval/x.toml::x[{run}]" for run in ["row0-run0", *unknown]))

    assert result.ret == 4
    assert len([line for line in result.errlines if line.startswith("ERROR: not found: ")]) == len(unknown)
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    assert not (plain_workspace.root / ".osmosis").exists()


def test_an_unknown_id_runs_nothing_under_xdist(plain_workspace: Workspace) -> None:
    plain_workspace.eval()
    plain_workspace.write("test_python.py", "def test_python(): pass\n")

    ordinary = plain_workspace.run("-n2", "test_python.py::test_missing")
    result = plain_workspace.run("-n2", "configs/eval/x.toml::x[row3-run0]")

    assert result.ret == ordinary.ret
    assert "INTERNALERROR" not in result.stdout.str()
    assert not (plain_workspace.root / ".osmosis").exists()
