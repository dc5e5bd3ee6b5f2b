"""Sessions of some rows: --lf after another session, which a session is compared with, and --osmosis-smoke."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PLAIN_AND_XDIST, Row, Workspace, read_json

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


# -- --osmosis-smoke: a few rows go all the way; errors fail the run, scores do not ------------------------


GATE = {"pass_rate": ">= 0.9"}


@pytest.mark.slow
def test_the_first_rows_run_once_and_their_scores_decide_nothing(workspace: Workspace) -> None:
    workspace.eval(rows=[FAIL, *[{}] * 7], evaluation={"n": 3}, gate=GATE, output={"results": "out.json"})

    result = workspace.run(CONFIG, "--osmosis-smoke", "-rPs", exits=0)

    result.assert_outcomes(passed=5, skipped=1)
    result.stdout.fnmatch_lines(
        [
            "  5 rows x 1 run = 5 rollouts, 1 in flight*",
            "  smoke: first 5 rows, one run each, scores do not decide",
        ]
    )
    result.stdout.fnmatch_lines(["*smoke: passes whatever its score", "score 0 < 1: answered *, expected *"])
    result.stdout.fnmatch_lines("""
        smoke: 5 of 24 runs, scores did not decide
        4 of 5 runs passed
        gate pass_rate >= 0.9: not decided (only 5 of 24 runs selected)
    """)
    assert not (workspace.root / "out.json").exists()
    published = read_json(workspace.root / "out.partial.json")
    assert published["partial"] is True
    assert [(row["row_index"], len(row["runs"])) for row in published["rows"]] == [(row, 1) for row in range(5)]
    assert published["rows"][0]["runs"][0]["passed"] is False


@pytest.mark.slow
def test_an_error_fails_a_smoke_run_whatever_max_errors_allows(workspace: Workspace) -> None:
    workspace.eval(rows=[{}, BROKEN, FAIL, {}, {}], limits={"max_errors": 0})

    result = workspace.run(CONFIG, "--osmosis-smoke", exits=1)

    result.assert_outcomes(passed=4, errors=1)
    result.stdout.fnmatch_lines(["run it again: pytest *row1-run0* --osmosis-smoke"])


@pytest.mark.slow
def test_a_smoke_run_of_all_rows_is_not_a_run_of_the_plan(workspace: Workspace) -> None:
    workspace.eval(rows=2)

    smoke = workspace.run(CONFIG, "--osmosis-smoke", "--osmosis-smoke-rows=4")
    whole = workspace.run(CONFIG)

    smoke.stdout.fnmatch_lines(["  smoke: first 2 rows, *", "smoke: 2 of 2 runs, *"])
    assert read_json(workspace.run_dirs()[0] / "results.json")["partial"] is True
    assert "last eval run" not in whole.stdout.str()


@pytest.mark.slow
def test_lf_selects_errors_and_forgets_no_failure_that_only_a_score_hides(workspace: Workspace) -> None:
    rows: list[Row] = [FAIL, {}, BROKEN, {}, {}, FAIL]
    workspace.eval(rows=rows, limits={"max_errors": 4})
    workspace.run(CONFIG)
    assert workspace.last_failed() == ids(0, 2, 5)
    rows[1:4] = [FAIL, {}, BROKEN]
    workspace.eval(rows=rows)

    workspace.run(CONFIG, "--osmosis-smoke").assert_outcomes(passed=4, errors=1)

    assert workspace.last_failed() == ids(0, 3, 5)
    workspace.run(CONFIG, "--osmosis-smoke", "--lf").assert_outcomes(passed=1, errors=1)
