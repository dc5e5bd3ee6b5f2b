"""`granularity = "row"`: one test for each row, which reports all its runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.plugin.header import MANY_TESTS, number_of_tests
from pytest_osmosis.record.plan import Plan, Span
from tests.plugin.workspaces import CONFIG, Row, Workspace, junit_cases

AGENT = """
async def rollout(ctx):
    print("rolling out", ctx.run_index)
    return [*ctx.prompt, {"role": "assistant", "content": str(ctx.run_index)}]
"""
REWARDS = """
def score(solution_str, ground_truth, extra_info, **kwargs):
    if solution_str in extra_info.get("raising", ""):
        raise ZeroDivisionError("the reward function broke")
    return float(solution_str in extra_info["passing"])
"""
ROWS: list[Row] = [{"passing": "012"}, {"passing": "0"}, {"passing": "02", "raising": "1"}, {"passing": "012"}]
"""The runs that pass, and those for which the reward function raises, out of three of each row."""


def prepare(workspace: Workspace, rows: Iterable[Row] = ROWS, **tables: Mapping[str, Any]) -> None:
    """Write an eval with three runs of each row."""
    workspace.write("rewards.py", REWARDS)
    workspace.write("agent.py", AGENT)
    defaults: dict[str, Mapping[str, Any]] = {
        "execution": {"granularity": "row"},
        "evaluation": {"n": 3, "batch_size": 4},
        "agent": {"agent": "agent:rollout"},
        "limits": {"max_errors": 12},
    }
    workspace.eval("x", rows, ".", **{**defaults, **tables})


def ran(workspace: Workspace) -> list[str]:
    """Return the runs that were rolled out last, in order."""
    return sorted(f"row{event['row']}-run{event['run']}" for event in workspace.events("start"))


def runs(*rows: int) -> list[str]:
    """Return the names of three runs of each row."""
    return [f"row{row}-run{run}" for row in rows for run in range(3)]


@pytest.mark.journey
def test_the_test_of_a_row_reports_all_its_runs(workspace: Workspace) -> None:
    prepare(workspace)

    workspace.run(CONFIG, "--junitxml=junit.xml", exits=1).assert_outcomes(passed=2, failed=1, errors=1)
    assert ran(workspace) == runs(0, 1, 2, 3)
    assert sum(len(row["runs"]) for row in workspace.results()["rows"]) == 12
    cases = junit_cases(workspace.root / "junit.xml")
    failure, error = (cases["x[row1]"].findtext("failure", ""), cases["x[row2]"].findtext("error", ""))
    assert failure.startswith(
        "2 of 3 runs did not pass\n"
        '  run1: score 0 < 1: answered "1", expected "2"\n'
        '  run2: score 0 < 1: answered "2", expected "2"\n'
        "run1:\n"
    )
    assert failure.endswith("run it again: pytest 'configs/eval/x.toml::x[row1]'")
    assert "run1: error in rewards:score: ZeroDivisionError" in error
    properties = {name: Counter(each.attrib["name"] for each in case.iter("property")) for name, case in cases.items()}
    assert properties["x[row0]"]["osmosis.runs"] == properties["x[row1]"]["osmosis.runs_passed"] == 1
    assert workspace.last_failed() == {f"configs/eval/x.toml::x[row{row}]" for row in (1, 2)}


@pytest.mark.slow
def test_a_gate_counts_runs_even_if_tests_report_rows(workspace: Workspace) -> None:
    prepare(workspace, gate={"pass_rate": ">= 0.7"})

    for where in ((), ("--osmosis-inline",)):
        workspace.run(CONFIG, *where, exits=0).assert_outcomes(passed=3, xfailed=2)  # 9 of 12 runs passed
        assert ran(workspace) == runs(0, 1, 2, 3)
    part = workspace.run(CONFIG, "-k", "[row1]")

    part.assert_outcomes(failed=1, skipped=1)
    part.stdout.fnmatch_lines(["gate pass_rate >= 0.7: not decided (only 1 of 4 rows selected)"])
    assert ran(workspace) == runs(1)


def test_the_id_of_a_row_selects_all_its_runs(workspace: Workspace) -> None:
    prepare(workspace, data={"rows": "0"})

    result = workspace.run("configs/eval/x.toml::x[row3]", "configs/eval/x.toml::x[row0]", "-rA")

    result.assert_outcomes(passed=2)
    assert ran(workspace) == runs(0, 3)
    result.stdout.fnmatch_lines(["*Captured stdout (run1) call*", "rolling out 1"])


def test_the_header_recommends_rows_for_many_tests() -> None:
    plan = Plan("x", "/ws/x.toml", "/ws/x.jsonl", (Span(0, MANY_TESTS // 4, 1),), n=4)

    assert list(number_of_tests(plan)) == []
    [line] = number_of_tests(replace(plan, n=5))
    assert line.startswith("  note: 25,000 tests")
    assert "--osmosis-granularity=row" in line
    assert "makes 5,000, one for each row" in line
    assert list(number_of_tests(replace(plan, n=5, granularity="row"))) == ["  granularity: row, 5,000 tests"]
    as_many_rows_as_runs = Plan("x", "", "", (Span(0, 5 * MANY_TESTS, 1),), n=1)
    assert list(number_of_tests(as_many_rows_as_runs)) == []
