"""Earlier results as baseline: written on request, compared row by row, with a gate that a regression fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PASS, Row, Workspace, junit_cases, read_json

UPDATE = "--osmosis-update-baseline"
FILE = "baselines/x.json"
GATE = {"max_regression": 0.02}
WORKFLOW = """
from pytest_osmosis import AgentWorkflow, Grader

class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)
"""
GRADER = """
class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)
"""


def eval_of(workspace: Workspace, rows: list[Row], **tables: Any) -> None:
    """Write an eval with these rows and [baseline] results."""
    workspace.eval(rows=rows, **{"baseline": {"results": FILE}, "gate": GATE, **tables})


def with_baseline(workspace: Workspace, rows: list[Row], **tables: Any) -> None:
    """Write the same eval, and its baseline from a first run."""
    eval_of(workspace, rows, **tables)
    workspace.run(CONFIG, UPDATE)
    assert (workspace.root / FILE).exists()


@pytest.mark.journey
def test_a_baseline_is_written_and_a_regression_against_it_fails(workspace: Workspace) -> None:
    eval_of(workspace, [PASS] * 7)
    written = workspace.run(CONFIG, UPDATE, "-rs", exits=0)
    written.assert_outcomes(passed=7, skipped=1)
    written.stdout.fnmatch_lines("""
          baseline: baselines/x.json, which this run will write
        baseline updated: baselines/x.json (pass rate 1.000)
        gate max_regression <= 0.02: not decided (this command writes a new baseline)
    """)
    assert read_json(workspace.root / FILE) == workspace.results()

    eval_of(workspace, [FAIL] * 6 + [PASS])
    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=1, xfailed=6, failed=1)
    finding = "pass rate 0.143, baseline 1.000, same 7 rows; -0.857: a regression (p = 0.031)"
    result.stdout.fnmatch_lines(f"""
          baseline: baselines/x.json (20* UTC, pass rate 1.000, 7 runs)
        against the baseline baselines/x.json (20* UTC): pass rate 0.143, baseline 1.000, same 7 rows
          row0 now: pytest-osmosis show x-* row0-run0
        gate max_regression <= 0.02: FAILS: {finding}
    """)
    case = junit_cases(workspace.root / "junit.xml")["x[gate max_regression <= 0.02]"]
    assert [child.tag for child in case] == ["failure"]
    found = workspace.results()["baseline"]
    assert (found["baseline"], found["rows"], found["worse"], found["regression"]) == (FILE, 7, 6, True)
    assert read_json(workspace.root / FILE) != workspace.results(), "it is never written by itself"


@pytest.mark.slow
def test_a_partial_or_unmeasured_run_does_not_become_the_baseline(workspace: Workspace) -> None:
    for rows, selected, said in (
        ([PASS] * 3, ("-k", "row0-"), "only 1 of 3 runs selected"),
        ([BROKEN] * 3, (), "*"),
        ([*[PASS] * 29, BROKEN], (), "1 of 30 runs was not measured; *"),
    ):
        eval_of(workspace, rows)
        result = workspace.run(CONFIG, UPDATE, *selected)
        assert result.ret in (1, 9)
        result.stdout.fnmatch_lines(["*x?baseline?*", f"the baseline is not updated: {said}"])
        assert not (workspace.root / FILE).exists()


@pytest.mark.slow
@pytest.mark.parametrize("grader", ["", GRADER])
def test_an_eval_with_an_entrypoint_does_not_differ_from_itself(workspace: Workspace, grader: str) -> None:
    workspace.write("rollouts/mine/main.py", WORKFLOW + grader)
    with_baseline(workspace, [PASS] * 6, experiment={"rollout": "mine", "entrypoint": "main.py"})

    result = workspace.run(CONFIG, exits=0)

    result.stdout.fnmatch_lines(["against the baseline baselines/x.json *"])
    result.stdout.no_fnmatch_line("*the baseline differs in *")
