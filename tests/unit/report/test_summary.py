"""The summary of an eval, line by line: every number and word must be so."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import pytest
from msgspec import structs

from pytest_osmosis.config.eval_kinds import GateRule, TokenPrices
from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.models.prices import FREE, price_from
from pytest_osmosis.report.overview import overview_rows
from pytest_osmosis.report.statistics import NAME_COLUMNS, statistics_rows
from pytest_osmosis.report.style import aligned
from pytest_osmosis.report.summary import brief_lines, last_run_line, short_verdict_lines, summary_lines, verdict_lines
from pytest_osmosis.results.read import read_head
from pytest_osmosis.results.results import Results, Throttling
from pytest_osmosis.results.totals import CassetteUse
from pytest_osmosis.stats import Interval, Paired
from pytest_osmosis.text.safe import width
from pytest_osmosis.verdicts.comparison import Matched, Pair, against_baseline, against_last_run, compare, decide
from tests.unit.made import (
    BROKE,
    A,
    B,
    failed,
    finished,
    of_baseline,
    pending,
    published,
    removed,
    rescored,
    results_of,
    with_baseline,
)

Golden = Callable[[str], str]


def all_lines(results: Results) -> list[str]:
    """Return the lines of the summary and of the verdict, as the terminal shows them."""
    return [*summary_lines(results), "", *verdict_lines(results)]


def summary(results: Results) -> str:
    return "\n".join(all_lines(results)) + "\n"


HALVES = [finished({A: score}, row) for row, score in enumerate((1.0, 0.0, 0.5))]
FIVE_RUNS = [finished({A: float(run < 3 + row)}, row, run) for row in range(2) for run in range(5)]


def test_one_run_a_row(golden: Golden) -> None:
    shown = summary(results_of(HALVES))

    assert shown == golden(shown)


def test_five_runs_a_row_and_a_gate(golden: Golden) -> None:
    shown = summary(results_of(FIVE_RUNS, n=5, minimum=0.7))

    assert shown == golden(shown)


def test_a_table_too_wide_for_the_terminal_is_split_in_two(golden: Golden) -> None:
    lines = summary_lines(results_of(FIVE_RUNS, n=5), columns=80)
    shown = "\n".join(lines[:6]) + "\n"

    assert shown == golden(shown)
    assert len(summary_lines(results_of(FIVE_RUNS, n=5), columns=90)) == len(lines) - 3


def test_verbose_output_adds_spread_and_noise(golden: Golden) -> None:
    lines = summary_lines(results_of(FIVE_RUNS, n=5), verbose=True)
    shown = "\n".join(lines[3:15]) + "\n"

    assert shown == golden(shown)


def test_narrow_tables_keep_intervals_next_to_their_values_and_there_is_no_pass_hat_of_single_runs() -> None:
    baseline = [of_baseline(finished({A: 1.0})), of_baseline(finished({A: 1.0}, 1))]
    lines = summary_lines(results_of([finished({A: 0.0}), finished({A: 1.0}, 1)], baseline=baseline), columns=20)

    heads = [line.split("  ") for line in lines if line.startswith("eval function")]
    assert [[cell.strip() for cell in head if cell] for head in heads] == [
        ["eval function", "model", "threshold", "mean", "95% interval"],
        ["eval function", "model", "pass rate", "95% interval"],
    ]

    verbose = summary_lines(results_of([finished({A: 1.0}), finished({A: 1.0}, 1)], n=3), verbose=True)

    tables = [line.split() for line in verbose if line.startswith("eval function")]
    assert tables[-1] == ["eval", "function", "pass@1"]


def test_a_single_run_is_singular_and_no_runs_have_dashes() -> None:
    usage = {"input_tokens": 1, "output_tokens": 0}
    results = results_of([finished({A: 1.0}, usage=usage)], minimum=0.5, duration_ms=890.0)

    assert all_lines(results)[3:] == [
        "1 token (1 in), cost unknown, 0.89 s",
        "",
        "pass rate 1.000: 1 of 1 run passed; 95% interval 0.050 to 1.000 (Gaffke, mid-p)",
        "gate pass_rate >= 0.5: HOLDS: 1.000 (1 of 1 run passed)",
        "  low power: if the true pass rate fell to 0.45, this gate would notice 54% of the time; "
        "89 rows would make it 80%",
    ]

    assert all_lines(results_of([]))[1:] == [
        "rewards:a           >= 1     -             -          -             -",
        "",
        "0 tokens, 3.2 s",
        "",
        "pass rate -: no run was measured",
    ]


def test_the_summary_states_that_unmeasured_runs_count_as_zero(golden: Golden) -> None:
    broken = [failed("provider", 1), failed("provider", 2), failed("host", 3), failed("agent", 4)]
    results = results_of([finished({A: 1.0}, 0), *broken, finished({}, 5, errors={A: BROKE})], minimum=0.5)
    shown = summary(results)

    assert shown == golden(shown)


def test_runs_that_are_missing_are_named_and_those_not_needed_are_no_gap() -> None:
    records = [finished({A: 1.0}, 0), removed(1), pending(2), pending(3)]

    stopped = replace(results_of(records, stopped="the probe failed: 401"), n_planned=4)

    assert all_lines(stopped)[3:] == [
        "1 run taken out by the grader",
        "36 tokens (22 in, 14 out), cost unknown, 3.2 s",
        "",
        "stopped: the probe failed: 401",
        "2 of 4 runs never started",
        "1 of 1 run passed (4 planned)",
    ]

    passed = [finished({A: 1.0}, 0), finished({A: 1.0}, 1), pending(2), pending(3)]
    results = replace(results_of(passed, stopped="gate pass_rate >= 0.5 holds"), stop_reason="decided")

    assert verdict_lines(results)[:2] == [
        "2 of 4 runs not needed: gate pass_rate >= 0.5 holds",
        "stopped early: estimates cover only what ran",
    ]


def test_several_functions_and_the_deciding_one(golden: Golden) -> None:
    records = [finished({A: 1.0, B: 0.25}, 0), finished({A: 0.0}, 1, errors={B: BROKE})]
    shown = summary(results_of(records, scorers=(A, B), decide=A, thresholds={B: 0.2}))

    assert shown == golden(shown)


@pytest.mark.parametrize("decide", ["all", "any"])
def test_the_summary_names_several_deciding_functions(decide: str) -> None:
    lines = verdict_lines(results_of([finished({A: 1.0, B: 1.0})], scorers=(A, B), decide=decide))

    rate = (
        f"pass rate 1.000: 1 of 1 run passed ({decide} of the functions); 95% interval 0.050 to 1.000 (Gaffke, mid-p)"
    )
    assert rate in lines


def test_nothing_measured_shows_dashes_and_no_zeros(golden: Golden) -> None:
    records = [failed("provider", row, run) for row in range(2) for run in range(2)]
    shown = summary(results_of(records, n=2, minimum=0.5))

    assert shown == golden(shown)


def test_a_function_without_scores_shows_dashes_next_to_one_with_scores() -> None:
    records = [finished({A: 1.0}, 0, run, errors={B: BROKE}) for run in range(2)]

    table = summary_lines(results_of(records, scorers=(A, B), decide=A, n=2))[:3]

    assert table == [
        "eval function  threshold   mean    95% interval  pass rate    95% interval  pass@2  pass^2",
        "rewards:a           >= 1  1.000  0.050 to 1.000      1.000  0.050 to 1.000   1.000   1.000",
        "rewards:b           >= 1      -               -          -               -       -       -",
    ]


def test_tokens_by_kind_and_their_cost() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 234, "cached_input_tokens": 100, "reasoning_tokens": 0}
    price = price_from(TokenPrices(4.0, 40.0, cached_input=1.0), "[prices]")
    results = results_of([finished({A: 1.0}, usage=usage), failed("provider", 1)], price=price)

    line = "1,234 tokens (1,000 in, 234 out, 100 cached, unknown for 1 run), $0.013 (unknown for 1 run), 3.2 s"
    assert line in summary_lines(results)
    assert "18 tokens (11 in, 7 out), $0, 3.2 s" in summary_lines(results_of([finished({A: 1.0})], price=FREE))


def test_answers_that_were_cut_off_are_reported_with_a_remedy() -> None:
    cut = [finished({A: float(row == 0)}, row, finish_reason="length") for row in range(3)]
    whole = finished({A: 1.0}, 3, finish_reason="stop")
    told = "3 answers cut off (finish_reason length), 2 of them did not pass: "

    assert f"{told}set [sampling] max_tokens" in summary_lines(results_of([*cut, whole]))
    bounded = results_of([*cut, whole], extra={"sampling": {"max_tokens": 256}})
    assert f"{told}raise [sampling] max_tokens (now 256)" in summary_lines(bounded)
    assert "cut off" not in summary(results_of([whole]))


def answered(equal: int, rows: int = 10, *, passes: int = 1, extra: dict[str, Any] | None = None) -> str:
    """Return the summary of rows with two runs each: `equal` rows have two equal answers, `passes` rows pass."""
    records = [
        finished({A: float(row < passes)}, row, run, answer="same" if row < equal else f"{run}")
        for row in range(rows)
        for run in range(2)
    ]
    return summary(results_of(records, n=2, extra=extra))


def test_equal_answers_in_most_rows_are_reported_unless_they_are_right() -> None:
    told = "9 of 10 rows gave 2 equal answers, so pass@k says no more than pass@1: "

    assert f"{told}check that the server samples and honours the seed" in answered(9, passes=0)
    assert f"{told}the temperature is 0" in answered(9, passes=0, extra={"sampling": {"temperature": 0.0}})
    few_or_right = [answered(8), answered(10, passes=10), answered(1, rows=1, passes=0), answered(9, passes=9)]
    assert not [text for text in few_or_right if "equal answers" in text]


STARTED_AT = "2026-11-20T14:03:59.000+00:00"


@pytest.mark.parametrize(
    ("better", "worse", "p", "changed", "words"),
    [
        (12, 9, 0.6636, 0, "12 rows better, 9 worse; may be chance (p = 0.66)"),
        (20, 4, 0.00154, 0, "20 rows better, 4 worse; unlikely to be chance (p = 0.0015)"),
        (0, 40, 1e-12, 0, "0 rows better, 40 worse; unlikely to be chance (p < 0.001)"),
        (0, 0, 1.0, 0, "no row of 100 changed"),
        (1, 0, 1.0, 1, "1 row better, 0 worse; may be chance (p = 1); 2 rows not compared"),
    ],
)
def test_rows_that_changed_since_the_last_run_are_counted(
    better: int, worse: int, p: float, changed: int, words: str
) -> None:
    rows = Matched([Pair(0, 0, [True], [True])] * 100, changed=changed)
    difference, interval = (better - worse) / 100, Interval(-0.1, 0.1, "made up")
    paired = Paired(100, better, worse, difference, None, interval, p, "McNemar, exact")
    last = against_last_run(replace(compare(rows), paired=paired), "x-1", STARTED_AT)

    lines = summary_lines(replace(results_of([finished({A: 1.0})]), previous=last))

    assert lines[-1] == f"against the last run (2026-11-20 14:03 UTC): {words}"


@pytest.mark.parametrize(
    ("cost", "n_unknown", "said"),
    [(1.2, 0, "$1.20"), (None, 500, "cost unknown"), (1.2, 4, "$1.20 (unknown for 4 runs)")],
)
def test_the_header_shows_the_time_and_cost_of_the_last_run(
    tmp_path: Path, cost: float | None, n_unknown: int, said: str
) -> None:
    path = tmp_path / "results.json"
    path.write_text(json.dumps(published([finished({A: 1.0})])))
    head = read_head(path)
    found = structs.replace(head.summary, total_runs=500, total_tokens=625_000, total_duration_ms=230_500)

    line = last_run_line(structs.replace(head, summary=structs.replace(found, cost_usd=cost, cost_unknown=n_unknown)))

    assert line == f"last run (2026-11-20 14:03 UTC): 500 rollouts, 625,000 tokens, {said}, 3 min 50 s"


def cassette(mode: CassetteMode, replayed: int = 0, cost_usd: float | None = None, **unrecorded: int) -> CassetteUse:
    return CassetteUse(
        mode, "cassettes/x.jsonl", "0" * 64, 52, replayed, 12_300 if replayed else 0, cost_usd, unrecorded
    )


RECORDED = "52 answers recorded in cassettes/x.jsonl"
FROM_CASSETTE = "40 of 52 requests came from the cassette: 12,300 tokens, $0.020 not spent"


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (cassette("record"), [RECORDED]),
        (
            cassette("record", provider=2, timeout=1),
            [RECORDED, "3 of 20 rollouts are not in the cassette: 2 provider, 1 timeout"],
        ),
        (cassette("record", provider=1), [ANY, "1 of 20 rollouts is not in the cassette: 1 provider"]),
        (cassette("new", 40, 0.02), [FROM_CASSETTE, "12 answers recorded in cassettes/x.jsonl"]),
        (cassette("new", 52, 0.02), [ANY]),
        (cassette("new", 40), ["40 of 52 requests came from the cassette: 12,300 tokens not spent, cost unknown", ANY]),
        (cassette("replay", 52, 0.02), ["tokens and cost are those of the recording, nothing was paid now"]),
    ],
)
def test_what_was_recorded_and_what_came_from_a_store(use: CassetteUse, said: list[str]) -> None:
    results = results_of([finished({A: 1.0}, row) for row in range(20)])
    plain, lines = summary_lines(results), summary_lines(replace(results, cassette=use))

    assert [line for line in lines if line not in plain] == said


def test_the_verdict_on_a_replay_says_so() -> None:
    results = replace(results_of([finished({A: 1.0})]), cassette=cassette("replay", 52))
    line = "replayed from cassettes/x.jsonl: no model was asked"

    assert verdict_lines(results)[0] == line
    assert short_verdict_lines(results)[0] == line
    assert line in brief_lines(results)
    assert overview_rows([results])[1][0] == "x (replayed)"


def test_second_attempts_and_waits_that_mattered_are_reported() -> None:
    lines = summary_lines(results_of([finished({A: 1.0}, attempt=2, repeated=True)]))

    assert (
        "1 run rolled out a second time, because the first process ended; what the first time used is not counted"
        in lines
    )

    held = {"requests_per_minute": 312.0, "tokens_per_minute": 0.01}
    throttled = replace(results_of([finished({A: 1.0})]), throttling=Throttling(2, 3.25, 4, 32, held))
    waits = summary_lines(throttled)[-2:]
    assert waits == [
        "[execution] requests_per_minute delayed requests by 5 min 12 s in all",
        "the server refused requests (429, 503): 2 pauses, 3.2 s in all; at times 4 of 32 rollouts in flight",
    ]


def test_the_ends_of_a_very_long_function_name_are_kept() -> None:
    name, wide = "a.package.with.very.many.parts.and.then:" + "function_that_goes_on_" * 2, "rewards:" + "評" * 60

    for each in (name, wide):
        head, row, *_ = summary_lines(results_of([finished({each: 1.0})], scorers=(each,)))
        shown = row.split(" ")[0]
        start, end = shown.split("...")
        assert NAME_COLUMNS - 1 <= width(shown) <= NAME_COLUMNS
        assert each.startswith(start)
        assert each.endswith(end)
        assert width(head) == width(row)


def test_a_threshold_that_is_nearly_one_is_not_shown_as_one_and_columns_fit_their_widest_cell() -> None:
    assert ">= 0.99999999 " in summary_lines(results_of([finished({A: 1.0})], thresholds={A: 0.99999999}))[1]

    assert aligned([["name", "n"], ["x", "1,000"]]) == ["name      n", "x     1,000"]
    assert aligned([["name", "n"], ["評価", "1,000"]]) == ["name      n", "評価  1,000"]


def test_a_baseline_of_the_same_name_is_distinguished_in_the_table() -> None:
    records = [finished({A: 1.0}, 0), finished({A: 0.0}, 1)]
    made = results_of(records, baseline=list(map(of_baseline, records)))
    assert made.baseline is not None
    alike = replace(made, baseline=replace(made.baseline, model=made.description.model))
    shown = [[row[1] for row in statistics_rows(results)] for results in (made, alike)]

    assert shown == [
        ["model", "vendor/some-model", "other"],
        ["model", "vendor/some-model", "vendor/some-model (baseline)"],
    ]


@pytest.mark.parametrize(
    ("scorers", "kept", "words"),
    [
        ((A,), {A: 999}, "999 stored scores"),
        ((A, B), {A: 1, B: 40}, "1 stored score of rewards:a, 40 stored scores of rewards:b"),
    ],
)
def test_reused_scores_are_counted(scorers: tuple[str, ...], kept: dict[str, int], words: str) -> None:
    made = replace(results_of([finished({A: 1.0, B: 1.0})], scorers=scorers), **rescored(kept=kept))

    assert f"reused {words} (code and rows unchanged); --osmosis-rescore recomputes them" in summary_lines(made)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (
            [Pair(0, 0, [False], [True]), Pair(1, 1, [True], [False]), Pair(2, 2, [True, False], [True, True])],
            "1 row better, 2 worse",
        ),
        ([Pair(0, 0, [True], [True])], "no row of 1 changed"),
    ],
)
def test_rows_that_changed_by_rescoring_are_counted_without_a_test(rows: list[Pair], words: str) -> None:
    made = replace(results_of([finished({A: 0.0})]), **rescored(Matched(rows)))

    assert f"against the previous verdicts (results.1.json): {words}" in summary_lines(made)


# -- baselines --------------------------------------------------------------------------------------------


def compared(**counts: int) -> Results:
    """Return results compared with stored ones: the number of rows that `kept` their pass or are `worse`."""
    rows = Matched(
        [Pair(0, 0, [True], [True])] * counts["kept"] + [Pair(0, 0, [False], [True])] * counts["worse"],
        added=1,
        changed=2,
    )
    against = against_baseline("b.json", rows, started_at=STARTED_AT, differs=("the model: a, here b",), allowed=0.02)
    rule = GateRule("max_regression", -0.02)
    return replace(results_of([finished({A: 0.0})]), **with_baseline(against), verdicts=[decide(rule, against)])


def test_a_comparison_with_a_baseline_reports_omitted_rows_and_differences_and_a_corrected_p() -> None:
    lines = all_lines(compared(kept=44, worse=6))

    # se = sqrt((6 - 0.72) / 49 / 50) = 0.0464; 0.07 - 1.96 se lies 0.452 se below 0
    assert [line for line in lines if "baseline" in line or "6 worse" in line or "power" in line] == [
        "against the baseline b.json (2026-11-20 14:03 UTC): pass rate 0.880, baseline 1.000, same 50 rows; "
        "rows left out: 2 changed, 1 added",
        "  -0.120, 95% interval -0.234 to -0.023; 0 rows better, 6 worse: a regression (p = 0.031, McNemar, exact)",
        "  the baseline differs in the model: a, here b",
        "gate max_regression <= 0.02: FAILS: pass rate 0.880, baseline 1.000, same 50 rows; -0.120: a regression "
        "(p = 0.031)",
        "  low power: if the true loss were 0.07, this gate would notice 33% of the time; 173 rows would make it 80%",
    ]

    rows = Matched([Pair(0, 0, [row >= 6], [True]) for row in range(100)])
    among = against_baseline("b.json", rows).among(3, 0.09375)
    corrected = summary_lines(replace(results_of([finished({A: 0.0})]), **with_baseline(among)))

    assert any(
        "may be chance (p = 0.031, McNemar, exact; as one of 3 evals p = 0.094, Holm)" in line for line in corrected
    )
    assert not any("regression" in line for line in corrected)


def test_table_tokens_costs_and_errors_of_the_baselines_model_are_told_apart() -> None:
    two_rows = [of_baseline(finished({A: 1.0}, 0)), of_baseline(pending(1, reason="401"))]

    both = all_lines(results_of([finished({A: 0.0}, 0), finished({A: 1.0}, 1)], baseline=two_rows))

    assert [line.split()[:2] for line in both[1:3]] == [[A, "vendor/some-model"], [A, "other"]]
    assert "baseline other: pass rate 1.000: 1 of 1 run passed; 18 tokens, cost unknown" in both
    assert "1 run of the baseline never ran: 401" in both
    assert any(line.startswith("54 tokens (33 in, 21 out)") for line in both)

    baseline = [of_baseline(failed("provider", row)) for row in range(2)]

    lines = summary_lines(results_of([finished({A: 1.0}, 0), failed("agent", 1)], baseline=baseline))

    assert [line for line in lines if "what happened" in line] == [
        "1 run counted as failed: what happened (boundary agent), first: row1-run0",
        "2 runs of the baseline not measured: what happened (first: row0-run0-baseline)",
    ]

    own = [finished({A: 0.0}, 0), finished({A: 1.0}, 1)]
    counted, uncounted = of_baseline(own[1]), [of_baseline(finished({A: 1.0}, row, usage=None)) for row in range(2)]

    for other, said in ((uncounted, "tokens unknown"), ([uncounted[0], counted], "18 tokens (unknown for 1 run)")):
        verdict = verdict_lines(results_of(own, baseline=other))
        assert any(line.endswith(f"; {said}, cost unknown") for line in verdict)
