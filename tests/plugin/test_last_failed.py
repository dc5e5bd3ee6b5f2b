"""A session after another one: --lf rolls out again what failed, scored too little or was not scored, and rows flip."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, PLAIN_AND_XDIST, Row, Workspace, read_json

ROWS: list[Row] = [{}, {"score": 0.0}, {"reward": "raises"}, {}]


def ids(*rows: int) -> set[str]:
    """Return the ids of the first run of each row."""
    return {f"configs/eval/x.toml::x[row{row}-run0]" for row in rows}


def ran(workspace: Workspace) -> list[int]:
    """Return the rows that were rolled out last."""
    return sorted(event["row"] for event in workspace.events("start"))


@pytest.mark.journey
def test_lf_selects_runs_that_failed_or_were_not_scored(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 4})

    workspace.run(CONFIG).assert_outcomes(passed=2, failed=1, errors=1)
    assert workspace.last_failed() == ids(1, 2)

    workspace.run(CONFIG, "--lf").assert_outcomes(failed=1, errors=1)
    assert len(workspace.run_dirs()) == 2
    assert ran(workspace) == [1, 2]


@pytest.mark.slow
def test_lf_selects_runs_below_their_threshold_if_a_gate_decides(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 4}, gate={"pass_rate": ">= 0.9"})

    workspace.run(CONFIG, exits=1).assert_outcomes(passed=2, xfailed=2, failed=1)
    assert workspace.last_failed() == ids(1, 2)  # the gate fails between 0.5 and 0.75, and is not among them

    workspace.run(CONFIG, "--lf").assert_outcomes(failed=1, errors=1, skipped=1)
    assert ran(workspace) == [1, 2]
    assert workspace.last_failed() == ids(1, 2)


@PLAIN_AND_XDIST
def test_the_cache_keeps_node_ids_of_python_tests_only(workspace: Workspace) -> None:
    workspace.eval(rows=ROWS, limits={"max_errors": 0})
    workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

    workspace.run(CONFIG, "test_python.py", "--osmosis-batch-size=4")

    assert workspace.last_failed() >= ids(2) | {"test_python.py::test_python"}
    assert not [nodeid for nodeid in workspace.last_failed() if "[limit" in nodeid]
    node_ids = read_json(workspace.root / ".pytest_cache" / "v" / "cache" / "nodeids")
    assert node_ids == ([] if workspace.distributed else ["test_python.py::test_python"])


@pytest.mark.slow
def test_the_second_run_is_compared_with_the_first(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    first = workspace.run(CONFIG)
    workspace.write(
        "rewards.py", "def score(solution_str, ground_truth, **kwargs):\n    return float(ground_truth != '0')\n"
    )

    listed = workspace.run(CONFIG, "--co")
    second = workspace.run(CONFIG)

    assert "last eval run" not in first.stdout.str()
    last = r"  last eval run \(\d{4}-\d\d-\d\d \d\d:\d\d UTC\): 4 rollouts, [\d,]+ tokens, \$0, \S+ s"
    listed.stdout.re_match_lines([last])
    second.stdout.re_match_lines(
        [last, r"against the last eval run \(.* UTC\): 0 rows better, 1 worse; may be chance \(p = 1\)"]
    )
    assert workspace.results()["last_run"]["run"] == workspace.run_dirs()[0].name
    assert "last eval run" not in workspace.run(CONFIG, "--osmosis-n=2").stdout.str(), "it has another plan"
    assert "against the last eval run" not in workspace.run(CONFIG, "-k", "row1-").stdout.str()
    assert workspace.results()["last_run"] is None
