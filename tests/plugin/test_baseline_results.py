"""Earlier results as baseline: written on request, compared row by row, with a gate that a regression fails."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.plugin.workspaces import BROKEN, CONFIG, FAIL, PASS, Row, Workspace, junit_cases, read_json

UPDATE = "--osmosis-update-baseline"
FILE = "baselines/x.json"
GATE = {"max_regression": 0.02}
GRADER = """
class Judge(Grader):
    async def grade(self, ctx):
        ctx.set_reward(1.0)
"""
WORKFLOW = """
class Flow(AgentWorkflow):
    async def run(self, ctx):
        await ctx.chat(ctx.prompt)
"""


def eval_of(workspace: Workspace, rows: list[Row], **tables: Any) -> None:
    """Write an eval with these rows and [baseline] results."""
    workspace.eval(rows=rows, **{"baseline": {"results": FILE}, "gate": GATE, **tables})


def with_baseline(workspace: Workspace, rows: list[Row], **tables: Any) -> None:
    """Write the same eval, and its baseline from a first run."""
    eval_of(workspace, rows, **tables)
    workspace.run(CONFIG, UPDATE)
    assert (workspace.root / FILE).exists()


def test_the_path_of_a_new_baseline_is_relative_to_the_current_folder(workspace: Workspace) -> None:
    eval_of(workspace, [PASS])

    result = workspace.run(CONFIG, UPDATE, "--osmosis-set=baseline.results=other.json", "--osmosis-dry-run")

    result.stdout.fnmatch_lines(["  baseline: other.json, which this run will write"])


@pytest.mark.journey
def test_a_baseline_is_written_and_a_regression_against_it_fails(workspace: Workspace) -> None:
    eval_of(workspace, [PASS] * 7)
    written = workspace.run(CONFIG, UPDATE, "-rs", exits=0)
    written.assert_outcomes(passed=7, skipped=1)
    written.stdout.fnmatch_lines(
        [
            "  baseline: baselines/x.json, which this run will write",
            "baseline updated: baselines/x.json (pass rate 1.000)",
            "gate max_regression <= 0.02: not decided (this command writes a new baseline)",
        ]
    )
    assert read_json(workspace.root / FILE) == workspace.results()

    eval_of(workspace, [FAIL] * 6 + [PASS])
    result = workspace.run(CONFIG, "--junitxml=junit.xml", exits=1)

    result.assert_outcomes(passed=1, xfailed=6, failed=1)
    finding = "pass rate 0.143, baseline 1.000, same 7 rows; -0.857: a regression (p = 0.031)"
    result.stdout.fnmatch_lines(
        [
            "  baseline: baselines/x.json (20* UTC, pass rate 1.000, 7 runs)",
            "against the baseline baselines/x.json (20* UTC): pass rate 0.143, baseline 1.000, same 7 rows",
            "  -0.857, 95% interval * to *; 0 rows better, 6 worse: a regression (p = 0.031, McNemar, exact)",
            "  worse: row0, row1, row2, row3, row4, row5",
            "  row0 now: pytest-osmosis show x-* row0-run0",
            f"gate max_regression <= 0.02: FAILS: {finding}",
        ]
    )
    case = junit_cases(workspace.root / "junit.xml")["x[gate max_regression <= 0.02]"]
    assert [child.tag for child in case] == ["failure"]
    found = workspace.results()["baseline"]
    assert (found["baseline"], found["rows"], found["worse"], found["regression"]) == (FILE, 7, 6, True)
    assert read_json(workspace.root / FILE) != workspace.results(), "it is never written by itself"


@pytest.mark.slow
@pytest.mark.parametrize(("gate", "status", "outcome"), [(GATE, 0, "xfailed"), ({}, 1, "failed")])
def test_runs_that_do_not_pass_become_the_baseline_with_or_without_a_gate(
    workspace: Workspace, gate: dict[str, Any], status: int, outcome: str
) -> None:
    eval_of(workspace, [PASS, FAIL], gate=gate)
    result = workspace.run(CONFIG, UPDATE)
    assert result.ret == status
    assert result.parseoutcomes() == {"passed": 1, outcome: 1} | ({"skipped": 1} if gate else {})
    assert read_json(workspace.root / FILE)["summary"]["pass_rate"] == 0.5


@pytest.mark.slow
def test_a_difference_within_chance_is_no_regression_and_differing_rows_are_reported(
    workspace: Workspace,
) -> None:
    with_baseline(workspace, [PASS] * 8)
    ours = workspace.root / "data/x.jsonl"
    lines = ours.read_text().splitlines()
    changed = json.dumps({**json.loads(lines[2]), "user_prompt": "What is 7 * 7?", "ground_truth": "49"})
    worse = [json.dumps({**json.loads(line), "score": 0.0}) for line in lines[3:6]]
    added = '{"user_prompt": "What is 8 * 8?", "ground_truth": "64"}'
    ours.write_text("\n".join([*lines[:2], changed, *worse, lines[6], "", added]) + "\n")

    result = workspace.run(CONFIG, "--osmosis-gate=max_regression = 0.05", "--osmosis-pass-threshold=0.5", exits=0)

    out = result.stdout.str()
    result.stdout.fnmatch_lines(
        [
            '  note: the baseline differs in the thresholds: {"rewards:score": 1.0}, here {"rewards:score": 0.5}',
            "against the baseline baselines/x.json (*): pass rate 0.500, baseline 1.000, same 6 rows; "
            "rows left out: 2 changed",
            "  -0.500, *; 0 rows better, 3 worse: may be chance (p = 0.25, McNemar, exact)",
            "  the baseline differs in the thresholds: *",
            "gate max_regression <= 0.05: HOLDS: *may be chance (p = 0.25)",
        ]
    )
    assert "a regression" not in out


@pytest.mark.slow
def test_a_gate_never_holds_on_unmeasured_runs(workspace: Workspace) -> None:
    with_baseline(workspace, [PASS] * 8)
    eval_of(workspace, [BROKEN] * 6 + [PASS] * 2, limits={"max_errors": 8})

    result = workspace.run(CONFIG, exits=9)

    result.assert_outcomes(passed=2, xfailed=6, errors=1)
    result.stdout.fnmatch_lines(["gate max_regression <= 0.02: NOT MEASURED: *; 6 unmeasured runs could change that"])


@pytest.mark.slow
def test_several_evals_are_corrected_together(workspace: Workspace) -> None:
    for name in ("x", "y"):
        workspace.eval(name, [PASS] * 7, baseline={"results": f"baselines/{name}.json"}, gate=GATE)
    both = "--osmosis-config=configs/eval"
    assert workspace.run(both, UPDATE).ret == 0
    workspace.eval("x", [FAIL] * 6 + [PASS], baseline={"results": "baselines/x.json"}, gate=GATE)

    result = workspace.run(both, exits=0)

    result.stdout.fnmatch_lines(["*: may be chance (p = 0.031, McNemar, exact; as one of 2 evals p = 0.062, Holm)"])
    assert workspace.run(CONFIG).ret == 1, "alone it is a regression"


@pytest.mark.parametrize(
    ("rows", "words", "said"),
    [
        ([PASS] * 3, ["-k", "row0-"], "the baseline is not updated: only 1 of 3 runs selected"),
        ([BROKEN] * 3, [], "the baseline is not updated: *"),
        ([PASS] * 29 + [BROKEN], [], "the baseline is not updated: 1 of 30 runs was not measured; *"),
    ],
    ids=["a part", "unmeasured", "one unmeasured"],
)
def test_a_partial_or_unmeasured_run_does_not_become_the_baseline(
    workspace: Workspace, rows: list[Row], words: list[str], said: str
) -> None:
    eval_of(workspace, rows)

    result = workspace.run(CONFIG, UPDATE, *words)

    assert result.ret in (1, 9)
    result.stdout.fnmatch_lines(["*x?baseline?*", said])
    assert not (workspace.root / FILE).exists()


@pytest.mark.parametrize(
    ("tables", "words", "said"),
    [
        (
            {},
            [],
            "*x.toml: [[]baseline] results: baselines/x.json does not exist; --osmosis-update-baseline writes it*",
        ),
        ({"baseline": {}}, [], "*[[]gate] max_regression: needs a baseline: set [[]baseline] results or model_path"),
        (
            {"baseline": {}, "gate": {}},
            [UPDATE],
            "*--osmosis-update-baseline: no eval names a file for its baseline; *",
        ),
        (
            {},
            [UPDATE, f"--osmosis-output={FILE}"],
            "*is the baseline of x *, which only --osmosis-update-baseline writes",
        ),
        ({"baseline": {"results": "../x.json"}}, [UPDATE], "*results: must be inside the workspace *"),
    ],
    ids=["missing", "none", "nowhere", "output", "outside"],
)
def test_invalid_baselines_exit_with_4(
    workspace: Workspace, tables: dict[str, Any], words: list[str], said: str
) -> None:
    eval_of(workspace, [PASS], **tables)

    result = workspace.run(CONFIG, *words, exits=4)

    result.stderr.fnmatch_lines([f"ERROR: {said}"])


@pytest.mark.slow
@pytest.mark.parametrize("grader", ["", GRADER])
def test_an_eval_with_an_entrypoint_does_not_differ_from_itself(workspace: Workspace, grader: str) -> None:
    code = "from pytest_osmosis import AgentWorkflow, Grader\n" + WORKFLOW + grader
    workspace.write("rollouts/mine/main.py", code)
    with_baseline(workspace, [PASS] * 6, experiment={"rollout": "mine", "entrypoint": "main.py"})

    result = workspace.run(CONFIG, exits=0)

    result.stdout.fnmatch_lines(["against the baseline baselines/x.json *"])
    result.stdout.no_fnmatch_line("*the baseline differs in *")


def test_a_run_of_the_baseline_that_passed_in_words_does_not_count(workspace: Workspace) -> None:
    with_baseline(workspace, [PASS] * 7)
    results = read_json(workspace.root / FILE)
    for row in results["rows"]:
        row["runs"][0]["passed"] = "no"
    workspace.write(FILE, json.dumps(results))

    result = workspace.run(CONFIG, exits=4)

    result.stderr.fnmatch_lines(["*baselines/x.json: rows[[]0].runs[[]0].passed: must be true or false, got 'no'; *"])
