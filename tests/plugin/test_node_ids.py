"""Node ids of runs: `configs/eval/x.toml::x[row3-run1]`."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace


def listed(result: pytest.RunResult) -> list[str]:
    """Return the ids that `--co -q` prints."""
    return [line for line in result.outlines if "::" in line]


def test_an_id_depends_on_row_and_run_alone(workspace: Workspace) -> None:
    workspace.eval(data={"rows": "1-2"})

    ids = listed(workspace.run(CONFIG, "--osmosis-n=2", "--co", "-q"))

    assert ids == [f"configs/eval/x.toml::x[row{row}-run{run}]" for row in (1, 2) for run in (0, 1)]
    assert listed(workspace.run(CONFIG, "--osmosis-n=2", "--osmosis-batch-size=7", "--co", "-q")) == ids


@pytest.mark.journey
def test_an_id_selects_its_run_alone(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {}], evaluation={"n": 2}, gate={"pass_rate": ">= 0.1"})

    result = workspace.run("configs/eval/x.toml::x[row1-run1]")

    result.assert_outcomes(failed=1, skipped=1)
    assert result.ret == 1
    assert [(run["row"], run["run"]) for run in workspace.events("start")] == [(1, 1)]
    assert workspace.results()["partial"] is True


@pytest.mark.slow
def test_ids_of_several_evals_run_in_one_session(workspace: Workspace) -> None:
    workspace.eval("x", evaluation={"batch_size": 4})
    workspace.eval("y")
    ids = ["x.toml::x[row2-run0]", "x.toml::x[row0-run0]", "y.toml::y[row1-run0]"]

    workspace.run(*(f"configs/eval/{name}" for name in ids)).assert_outcomes(passed=3)
    assert [row["row_index"] for row in workspace.results("x")["rows"]] == [0, 2]
    assert [row["row_index"] for row in workspace.results("y")["rows"]] == [1]


X = "configs/eval/x.toml::x"
MISSING = [
    *(f"{X}[{title}]" for title in ("row3-run0", "row3", "row1-run2", "row1-run0-baseline", "row01-run0", "nonsense")),
    f"{X}[gate pass_rate >= 0.5]",
    f"{X}x[row1-run1]",
    f"{X}x",
    f"./{X}y[row9-run0]",
]


def test_ids_of_missing_tests_are_usage_errors_with_one_that_exists(workspace: Workspace) -> None:
    """Under xdist too, where pytest would collect nothing and exit with 5."""
    workspace.eval(evaluation={"n": 2}, data={"rows": "0"}, gate={"pass_rate": ">= 0.5"})

    result = workspace.run(f"{X}[row0-run0]", *MISSING, exits=4)

    errors = [line for line in result.errlines if line]
    for line, arg in zip(errors, MISSING, strict=True):
        file = arg.partition("::")[0]
        tests = f"this eval has tests like '{file}::x[row0-run0]', which --co lists"
        assert line == f"ERROR: {arg}: not found; {tests}; {file} -k 'row0-' selects all runs of a row"
    assert not (workspace.root / ".osmosis").exists()
