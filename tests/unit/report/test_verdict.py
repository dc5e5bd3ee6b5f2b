"""The last lines of a summary: why an eval stopped, what passed, and the rows that a failing gate owes it to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.report.statistics import statistics_lines
from pytest_osmosis.report.summary import verdict_lines
from pytest_osmosis.results.results import Results, runs_for
from pytest_osmosis.verdicts.gates import decide
from tests.unit.made import A, B, failed, finished, of_baseline, pending, removed, results_of


def lines(results: Results) -> list[str]:
    return verdict_lines(results)


def stopped(reason: StopReason, text: str, missing: list[RunRecord]) -> list[str]:
    """Return the lines before the pass rate of an eval that stopped after one run of each row but the `missing`."""
    records = [finished({A: 1.0}, row) for row in range(10)]
    made = replace(results_of([*records, *missing], stopped=text), stop_reason=reason)
    return lines(made)[:-1]


def never(n: int, reason: str | None = None) -> list[RunRecord]:
    return [pending(100 + row, reason=reason) for row in range(n)]


def test_a_stop_says_why_and_how_many_runs_never_started_or_did_not_finish() -> None:
    begun = [pending(200 + row)._replace(started=True) for row in range(3)]

    for missing, said in (
        (never(1_001), ": 1,001 of 1,011 runs never started"),
        ([*never(7), *begun], ": 7 of 20 runs never started, 3 did not finish"),
        (begun, ": 3 of 13 runs did not finish"),
        ([], ""),
    ):
        assert stopped("interrupt", "interrupted", missing) == [f"interrupted{said}"]

    text = "46 of 120 runs not measured (limit 10%), mostly 502 Bad Gateway"

    assert stopped("max_errors", text, never(2)) == [f"stopped: {text}", "2 of 12 runs never started"]
    assert stopped("max_errors", text, []) == [f"stopped: {text}"]
    assert stopped("maxfail", "stopped by x.toml::x[row0-run0] (--maxfail=1)", never(1)) == [
        "stopped by x.toml::x[row0-run0] (--maxfail=1)",
        "1 of 11 runs never started",
    ]

    records = [finished({A: 1.0}), *never(2, "its host was lost"), pending(50)]

    assert lines(results_of(records))[:-1] == ["2 runs never ran: its host was lost", "1 run never ran"]


# -- a part of the plan ------------------------------------------------------------------------------------


def part(records: list[RunRecord], **fields: object) -> Results:
    return replace(results_of(records), partial=True, n_planned=40, **fields)  # type: ignore[arg-type]


def test_a_part_of_the_plan_and_a_smoke_test_have_counts_and_no_rates() -> None:
    made = part([finished({A: 1.0}), finished({A: 0.0}, 1), failed("provider", 2)])

    assert lines(made) == ["1 of 3 runs passed, 1 not measured (40 planned)"]
    several = replace(made, pass_rule=replace(made.pass_rule, scorers=(A, B), decide=A))
    assert lines(several) == [f"1 of 3 runs passed, 1 not measured (40 planned; decided by {A})"]
    assert statistics_lines(made, verbose=True) == [
        "eval function  threshold   mean  passed",
        "rewards:a           >= 1  0.333  1 of 3",
    ]

    smoke = part([finished({A: 1.0}), finished({A: 0.0}, 1)], smoke_of=40)

    assert lines(smoke) == ["smoke: 2 of 40 runs, scores did not decide", "1 of 2 runs passed"]

    assert lines(part([failed("provider")])) == ["no run was measured"]

    both = results_of([finished({A: 1.0})], baseline=[of_baseline(finished({A: 0.0}))])

    assert lines(replace(both, partial=True, n_planned=40)) == [
        "1 of 1 run passed (40 planned)",
        "baseline other: 0 of 1 run passed (40 planned); 18 tokens, cost unknown",
    ]


# -- the worst rows ----------------------------------------------------------------------------------------


SHOW = "pytest-osmosis show x-1"


def gated(records: list[RunRecord], *rules: GateRule, scorers: tuple[str, ...] = (A,)) -> list[str]:
    """Return the lines below gates, without those on power."""
    made = results_of(records, scorers=scorers)
    verdicts = [decide(rule, runs_for(rule, records, made.pass_rule)) for rule in rules]
    shown = lines(replace(made, verdicts=verdicts))
    return [line for line in shown if line.startswith("  ") and "low power" not in line]


def row(index: int, *scores: float) -> list[RunRecord]:
    return [finished({A: score}, index, run) for run, score in enumerate(scores)]


PASS_RATE = GateRule("pass_rate", 0.9)


MIXED = [*row(3, 1, 1, 0), *row(5, 1, 1, 1), *row(9, 0, 1, 0), *row(12, 0, 0, 0)]
BROKEN = [*row(0, 0, 1), failed("provider", 1), removed(2), failed("model", 3), *row(4, 1)]
MEAN = GateRule("mean", 0.8)


@pytest.mark.parametrize(
    ("records", "rule", "worst"),
    [
        (MIXED, PASS_RATE, "row12 0 of 3, row9 1 of 3, row3 2 of 3; {} row12-run0"),
        (
            [record for index in range(8) for record in row(index, 0)],
            PASS_RATE,
            "row0 0 of 1, row1 0 of 1, row2 0 of 1, row3 0 of 1, row4 0 of 1 and 3 more; {} row0-run0",
        ),
        (BROKEN, PASS_RATE, "row3 0 of 1, row0 1 of 2; {} row3-run0"),
        ([*row(0, 0.9), *row(1, 0.25, 0.5), *row(2, 0.1)], MEAN, "row2 0.100, row1 0.375; {} row2-run0"),
        ([*row(0, -0.5), failed("timeout", 1), *row(2, 0.9)], MEAN, "row0 -0.500, row1 -0.500; {} row0-run0"),
    ],
    ids=["by runs passed", "equals in order", "unmeasured and removed", "by means", "crashes as the worst answer"],
)
def test_a_gate_that_fails_names_its_worst_rows(records: list[RunRecord], rule: GateRule, worst: str) -> None:
    assert gated(records, rule) == [f"  worst rows: {worst.format(SHOW)}"]


def test_a_gate_on_one_function_counts_what_that_one_passed_and_equal_worst_rows_are_named_once() -> None:
    records = [finished({A: 1.0, B: 0.0}, 0), finished({A: 0.0, B: 1.0}, 1)]

    found = gated(records, GateRule("pass_rate", 0.9, function=B), scorers=(A, B))
    assert found == [f"  worst rows: row0 0 of 1; {SHOW} row0-run0"]

    assert len(gated(row(0, 0.0), PASS_RATE, GateRule("pass_at", 0.9, k=1))) == 1


@pytest.mark.parametrize("records", [row(0, 1.0), [failed("provider")]])
def test_a_gate_that_does_not_fail_names_no_rows(records: list[RunRecord]) -> None:
    assert gated(records, PASS_RATE) == []
