"""The last lines of a summary: why an eval stopped, what passed, causes of failures, and rows that changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.models.base import ChatReply, refusal_error
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.record.stop import StopReason
from pytest_osmosis.report.statistics import changed_rows_lines, statistics_lines
from pytest_osmosis.report.summary import cause_lines, verdict_lines
from pytest_osmosis.results.results import Results, causes_of, runs_for
from pytest_osmosis.verdicts.comparison import Against, Matched, Pair, changed_rows
from pytest_osmosis.verdicts.gates import decide
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.unit.made import A, B, failed, finished, last_run, of_baseline, pending, removed, results_of


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


RULE = PassRule((A,))
REJECTED = "the server answered 400 Bad Request: temperature is not supported"
HINT = "it looks like a configuration problem, not like a bad model"


def cause_told(n: int, n_runs: int, error: str = REJECTED, boundary: Boundary = "model") -> list[str]:
    """Return the lines on one error that `n` of the runs met."""
    return cause_lines(causes_of([failed(boundary, row, error=error) for row in range(n)], RULE), n_runs)


@pytest.mark.parametrize(
    ("boundary", "error", "said"),
    [
        (
            "provider",
            "the server answered 502 Bad Gateway (5 tries)",
            "36 runs not measured: 502 Bad Gateway (first: row0-run0)",
        ),
        ("agent", "KeyError: 'x'", "36 runs counted as failed: KeyError: 'x' (boundary agent), first: row0-run0"),
        ("timeout", "KeyError: 'x'", "36 runs counted as failed: KeyError: 'x' (boundary timeout), first: row0-run0"),
    ],
)
def test_runs_are_counted_by_their_cause_as_not_measured_or_failed(boundary: Boundary, error: str, said: str) -> None:
    assert cause_told(36, 40, error, boundary) == [said]


@pytest.mark.parametrize(("n", "n_runs"), [(36, 120), (6, 119), (1, 1)])
def test_a_request_that_is_rejected_in_more_than_5_percent_of_the_runs_looks_like_a_configuration_problem(
    n: int, n_runs: int
) -> None:
    first, hint = cause_told(n, n_runs)

    runs = "1 run" if n == 1 else f"{n} runs"
    assert first == (
        f"{runs} counted as failed: 400 Bad Request: temperature is not supported (boundary model), first: row0-run0"
    )
    assert hint == f"  {n} of {n_runs} run{'s' * (n_runs > 1)} met this error: {HINT}"


REFUSALS = [
    ChatReply({"role": "assistant", "content": None, "refusal": "I will not add"}),
    ChatReply({"role": "assistant", "content": ""}, finish_reason="content_filter"),
]


@pytest.mark.parametrize(
    ("n", "n_runs", "error"),
    [(6, 120, REJECTED), (1, 16, REJECTED), *((36, 40, str(refusal_error(reply))) for reply in REFUSALS)],
)
def test_a_request_that_is_rejected_in_few_runs_and_refusals_are_no_configuration_problem(
    n: int, n_runs: int, error: str
) -> None:
    assert len(cause_told(n, n_runs, error)) == 1


def test_the_most_frequent_causes_are_listed_and_the_others_counted() -> None:
    errors = [f"KeyError: '{letter}'" for letter in "abcdefg" for _ in range(ord("h") - ord(letter))]
    causes = causes_of([failed("provider", row, error=error) for row, error in enumerate(errors)], RULE)

    said = cause_lines(causes, len(errors), of=" of the baseline")

    assert said[0] == "7 runs of the baseline not measured: KeyError: 'a' (first: row0-run0)"
    assert len(said) == 6
    assert said[-1] == "and 2 more causes (3 runs of the baseline)"


def ran(*runs: bool, row: int = 0) -> list[RunRecord]:
    """The records of a row whose runs passed or did not."""
    return [finished({A: float(passed)}, row, index) for index, passed in enumerate(runs)]


def rows_told(pairs: list[Pair], results: Results, against: Against = "last_run") -> list[str]:
    found = {**last_run(Matched(pairs), "x-0"), "changed_rows": changed_rows(pairs, against)}
    return changed_rows_lines(against, replace(results, **found))


def test_worse_rows_are_named_before_better_ones_with_counts_and_a_command() -> None:
    results = results_of([*ran(True), *ran(False, row=1), *ran(True, row=2)])
    pairs = [Pair(0, 0, [True], [False]), Pair(1, 4, [False], [True]), Pair(2, 2, [True], [True])]

    assert rows_told(pairs, results) == [
        "  worse: row1 (was row4)",
        "  better: row0",
        "  row1 now: pytest-osmosis show x-1 row1-run0",
    ]

    of_five = results_of([*ran(True, False, True, False, False, row=12), *ran(True, False)], n=5)
    several = [Pair(0, 0, [True, False], [False]), Pair(12, 12, [True, False, True, False, False], [True] * 5)]

    assert rows_told(several, of_five) == [
        "  worse: row12 5/5 -> 2/5",
        "  better: row0 0/1 -> 1/2",
        "  row12 now: pytest-osmosis show x-1 row12-run1",
    ]


def test_only_the_first_ten_rows_are_named_with_a_run_that_counts_or_passed() -> None:
    results = results_of([record for row in range(14) for record in ran(False, row=row)])
    pairs = [Pair(row, row, [False], [True]) for row in range(14)]

    assert rows_told(pairs, results)[0] == f"  worse: {', '.join(f'row{row}' for row in range(10))} and 4 more"
    assert rows_told([Pair(0, 0, [True], [True])], results_of(ran(True))) == []

    removed_first = results_of([removed(), finished({A: 0.0}, 0, 1)], n=2)
    better = results_of(ran(False, True), n=2)

    assert "  row0 now: pytest-osmosis show x-1 row0-run1" in rows_told([Pair(0, 0, [False], [True])], removed_first)
    assert rows_told([Pair(0, 0, [False, True], [False, False])], better, "rescored") == [
        "  better: row0 0/2 -> 1/2",
        "  row0 now: pytest-osmosis show x-1 row0-run1",
    ]


def test_commands_can_be_copied_from_any_folder() -> None:
    one, own = [Pair(0, 0, [False], [True])], results_of(ran(False))
    names = {
        "../my evals/x-1": "'../my evals/x-1'",
        "-runs/x-1": "./-runs/x-1",
        ".osmosis/runs/-x": "./.osmosis/runs/-x",
    }

    found = {folder: rows_told(one, replace(own, provenance={"run_dir": folder}))[1] for folder in names}

    assert found == {folder: f"  row0 now: pytest-osmosis show {name} row0-run0" for folder, name in names.items()}
