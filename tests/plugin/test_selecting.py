"""-k, --co and node ids, options that change the order, and evals of which nothing is selected."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace


@pytest.mark.slow
def test_k_selects_runs_by_their_name_and_if_nothing_is_selected_nothing_runs(workspace: Workspace) -> None:
    workspace.eval(rows=13, gate={"pass_rate": ">= 0.5"})

    workspace.run(CONFIG, "-k", "row99", exits=5)
    assert not (workspace.root / ".osmosis").exists()

    workspace.run(CONFIG, "-k", "row1-").assert_outcomes(passed=1, skipped=1)
    assert [row["row_index"] for row in workspace.results()["rows"]] == [1]
    assert workspace.results()["gates"][0]["state"] == "partial"


@pytest.mark.slow
def test_options_that_change_only_the_order_leave_the_gate_its_decision(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, {"score": 0.0}, {}], gate={"pass_rate": ">= 0.9"})

    for words in (["--nf"], ["--ff"], ["--sw"], ["--sw"], ["-m", "osmosis"]):
        workspace.run(CONFIG, *words, exits=1).assert_outcomes(passed=2, xfailed=1, failed=1)

    workspace.run(CONFIG, "--lf", exits=1).assert_outcomes(failed=1, skipped=1, deselected=2)


@pytest.mark.slow
def test_a_named_eval_without_a_selected_test_is_mentioned(workspace: Workspace) -> None:
    workspace.eval(rows=3, gate={"pass_rate": ">= 0.9"})
    workspace.write("test_python.py", "def test_python(): pass\n")
    text = "osmosis: x: none of its 3 tests was selected, so nothing was measured"

    deselected = workspace.run(CONFIG, "test_python.py", "-m", "not osmosis")
    removing = "def pytest_collection_modifyitems(items):\n    items[:] = [i for i in items if '.py' in i.nodeid]\n"
    workspace.write("conftest.py", removing)
    removed = workspace.run(CONFIG, "test_python.py")

    for result in (deselected, removed):
        assert result.ret == 0
        result.stdout.fnmatch_lines([text])
    assert not any(text in line for line in workspace.run(CONFIG, "--co").outlines)


X = "configs/eval/x.toml::x"
MISSING = [
    *(f"{X}[{title}]" for title in ("row3-run0", "row3", "row1-run2", "row1-run0-baseline", "row01-run0", "nonsense")),
    f"{X}[gate pass_rate >= 0.5]",
    f"{X}x[row1-run1]",
    f"{X}x",
    f"./{X}y[row9-run0]",
]


@pytest.mark.journey
def test_collect_only_starts_nothing_and_what_is_missing_hides_no_wrong_id(workspace: Workspace) -> None:
    model = {"base_url": "http://127.0.0.1:1/v1", "api_key_env": "A_KEY_THAT_IS_NOT_SET"}
    workspace.eval(model=model, secrets={"required": ["A_SECRET_THAT_IS_NOT_SET"]}, gate={"pass_rate": ">= 0.5"})
    workspace.write("rewards.py", "raise SystemExit('a host was started')\n")
    listed = [line for line in workspace.run(CONFIG, "--co", "-q", exits=0).outlines if "::" in line]

    assert listed == [f"configs/eval/x.toml::x[row{row}-run0]" for row in range(3)]
    refused = workspace.run("configs/eval/x.toml::x[row9-run0]", exits=4)
    refused.stderr.fnmatch_lines(["ERROR: *A_SECRET_THAT_IS_NOT_SET: missing*", "ERROR: *row9-run0?: not found; *"])
    assert not (workspace.root / ".osmosis").exists()


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
