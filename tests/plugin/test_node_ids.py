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
MISSING = {
    f"{X}[row3-run0]": f"data/x.jsonl has 3 rows, the last of which is row2; did you mean '{X}[row2-run0]'?",
    f"{X}[row3]": f"data/x.jsonl has 3 rows, the last of which is row2; did you mean '{X}[row2-run0]'?",
    f"{X}[row1-run2]": f"every row has 2 runs, the last of which is run1; did you mean '{X}[row1-run1]'?",
    f"{X}[row1-run0-baseline]": f"the eval has no baseline model; did you mean '{X}[row1-run0]'?",
    f"{X}[row01-run0]": f"there is no such test; did you mean '{X}[row1-run0]'?",
    f"{X}[row99999999999999999999-run0]": f"there is no such test; did you mean '{X}[row0-run0]'?",
    f"{X}[nonsense]": f"there is no such test; did you mean '{X}[row0-run0]'?",
    "configs/eval/x.toml::xx[row1-run1]": f"the eval in this file is called x; did you mean '{X}[row1-run1]'?",
    "configs/eval/x.toml::xx": f"the eval in this file is called x; did you mean {X}?",
    "./configs/eval/x.toml::y[row9-run0]": f"the eval in this file is called x; did you mean './{X}[row2-run0]'?",
}


def errors(result: pytest.RunResult) -> list[str]:
    return [line for line in result.errlines if line]


def test_ids_of_missing_tests_are_usage_errors_with_the_nearest_that_exists(workspace: Workspace) -> None:
    """Under xdist too, where pytest would collect nothing and exit with 5."""
    workspace.eval(evaluation={"n": 2}, data={"rows": "0"})

    result = workspace.run(f"{X}[row0-run0]", *MISSING, exits=4)

    assert errors(result) == [f"ERROR: {arg}: not found: {text}" for arg, text in MISSING.items()]
    assert not (workspace.root / ".osmosis").exists()


def test_what_is_reported_for_the_whole_eval_cannot_be_selected(workspace: Workspace) -> None:
    workspace.eval(gate={"pass_rate": ">= 0.5"})

    result = workspace.run(f"{X}[gate pass_rate >= 0.5]", exits=4)

    text = "is reported at the end of the whole eval and cannot be selected; type configs/eval/x.toml for all of it"
    assert errors(result) == [f"ERROR: {X}[gate pass_rate >= 0.5]: {text}"]


@pytest.mark.slow
def test_an_id_of_a_row_that_is_not_stored_is_a_usage_error(workspace: Workspace) -> None:
    workspace.eval(data={"rows": "0-1"})
    workspace.run(CONFIG)

    result = workspace.run(f"{X}[row2-run0]", "--osmosis-from=latest", exits=4)

    text = f"not found: row2 is not among the rows of this eval; did you mean '{X}[row1-run0]'?"
    assert errors(result) == [f"ERROR: {X}[row2-run0]: {text}"]
