"""The summary of an eval and its last lines, line by line: every number and word must be so."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule, TokenPrices
from pytest_osmosis.formats import CassetteMode
from pytest_osmosis.models.base import ChatReply, refusal_error
from pytest_osmosis.models.prices import FREE, price_from
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.report.overview import overview_rows
from pytest_osmosis.report.statistics import ASSUMED, NAME_COLUMNS, changed_rows_lines, statistics_lines
from pytest_osmosis.report.summary import (
    brief_lines,
    cause_lines,
    last_run_line,
    short_verdict_lines,
    summary_lines,
    verdict_lines,
)
from pytest_osmosis.results.read import read_head
from pytest_osmosis.results.results import EvalDescription, Results, Throttling, causes_of, runs_for
from pytest_osmosis.results.totals import CassetteUse
from pytest_osmosis.stats import Interval, Paired
from pytest_osmosis.text.safe import width
from pytest_osmosis.verdicts import gates
from pytest_osmosis.verdicts.comparison import (
    Against,
    LastRun,
    Matched,
    Pair,
    against_baseline,
    against_last_run,
    changed_rows,
    compare,
    decide,
)
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.golden import Golden
from tests.unit.made import (
    BROKE,
    A,
    B,
    failed,
    finished,
    last_run,
    of_baseline,
    pending,
    published,
    removed,
    rescored,
    results_of,
    with_baseline,
)


def all_lines(results: Results) -> list[str]:
    """Return the lines of the summary and of the verdict, as the terminal shows them."""
    return [*summary_lines(results), "", *verdict_lines(results)]


STARTED_AT = "2026-11-20T14:03:59.000+00:00"


def compared(**counts: int) -> Results:
    """Return results compared with stored ones: the number of rows that `kept` their pass or are `worse`.

    Power at 44 and 6: se = sqrt((6 - 0.72) / 49 / 50) = 0.0464; 0.07 - 1.96 se lies 0.452 se below 0.
    """
    rows = Matched(
        [Pair(0, 0, [True], [True])] * counts["kept"] + [Pair(0, 0, [False], [True])] * counts["worse"],
        added=1,
        changed=2,
    )
    against = against_baseline("b.json", rows, started_at=STARTED_AT, differs=("the model: a, here b",), allowed=0.02)
    rule = GateRule("max_regression", -0.02)
    return replace(results_of([finished({A: 0.0})]), **with_baseline(against), verdicts=[decide(rule, against)])


def cassette(mode: CassetteMode, replayed: int = 0, cost_usd: float | None = None, **unrecorded: int) -> CassetteUse:
    return CassetteUse(
        mode, "cassettes/x.jsonl", "0" * 64, 52, replayed, 12_300 if replayed else 0, cost_usd, unrecorded
    )


def since_last_run(better: int, worse: int, p: float, changed: int) -> LastRun:
    rows = Matched([Pair(0, 0, [True], [True])] * 100, changed=changed)
    difference, interval = (better - worse) / 100, Interval(-0.1, 0.1, "made up")
    paired = Paired(100, better, worse, difference, None, interval, p, "McNemar, exact")
    return against_last_run(replace(compare(rows), paired=paired), "x-1", STARTED_AT)


one = partial(replace, results_of([finished({A: 1.0})]))
ONE, OTHER = finished({A: 1.0}, 0), finished({A: 1.0}, 1)
MIXED, NEVER = [finished({A: 0.0}, 0), OTHER], [pending(2), pending(3)]
UNCOUNTED = [of_baseline(finished({A: 1.0}, row, usage=None)) for row in range(2)]
FIVE_RUNS = [finished({A: float(run < 3 + row)}, row, run) for row in range(2) for run in range(5)]
CUT = [*(finished({A: float(row == 0)}, row, finish_reason="length") for row in range(3)), finished({A: 1.0}, 3)]
KINDS = {"input_tokens": 1000, "output_tokens": 234, "cached_input_tokens": 100, "reasoning_tokens": 0}
HELD = {"requests_per_minute": 312.0, "tokens_per_minute": 0.01}
BETTER, WORSE = Pair(0, 0, [True], [False]), Pair(0, 0, [False], [True])


def evals() -> dict[str, Results]:
    twenty = results_of([finished({A: 1.0}, row) for row in range(20)])
    six_worse = against_baseline("b.json", Matched([WORSE] * 6 + [Pair(0, 0, [True], [True])] * 94))
    return {
        "one run a row": results_of([finished({A: score}, row) for row, score in enumerate((1.0, 0.0, 0.5))]),
        "five runs a row and a gate": results_of(FIVE_RUNS, n=5, minimum=0.7),
        "a single run": results_of(
            [finished({A: 1.0}, usage={"input_tokens": 1, "output_tokens": 0})], minimum=0.5, duration_ms=890.0
        ),
        "no run": results_of([]),
        "nothing measured": results_of(
            [failed("provider", row, run) for row in range(2) for run in range(2)], n=2, minimum=0.5
        ),
        "unmeasured runs that count as zero": results_of(
            [
                *(ONE, failed("provider", 1), failed("provider", 2), failed("host", 3), failed("agent", 4)),
                finished({}, 5, errors={A: BROKE}),
            ],
            minimum=0.5,
        ),
        "runs that are missing": replace(
            results_of([ONE, removed(1), *NEVER], stopped="the probe failed: 401"), n_planned=4
        ),
        "runs that are not needed": replace(
            results_of([ONE, OTHER, *NEVER], stopped="gate pass_rate >= 0.5 holds"), stop_reason="decided"
        ),
        "several functions and the deciding one": results_of(
            [finished({A: 1.0, B: 0.25}, 0), finished({A: 0.0}, 1, errors={B: BROKE})],
            scorers=(A, B), decide=A, thresholds={B: 0.2},
        ),
        **{f"{which} of two functions decide": results_of([finished({A: 1.0, B: 1.0})], scorers=(A, B), decide=which)
           for which in ("all", "any")},
        "tokens by kind and their cost": results_of(
            [finished({A: 1.0}, usage=KINDS), failed("provider", 1)],
            price=price_from(TokenPrices(4.0, 40.0, cached_input=1.0), "[prices]"),
        ),
        "a model that costs nothing": results_of([ONE], price=FREE),
        "answers that were cut off": results_of(CUT),
        "answers that were cut off at a bound": results_of(CUT, extra={"sampling": {"max_tokens": 256}}),
        "a run that was rolled out twice": results_of([finished({A: 1.0}, attempt=2, repeated=True)]),
        "waits that mattered": one(throttling=Throttling(2, 3.25, 4, 32, HELD)),
        "recorded": one(cassette=cassette("record")),
        "recorded but for some": replace(twenty, cassette=cassette("record", provider=2, timeout=1)),
        "from the cassette and recorded": one(cassette=cassette("new", 40, 0.02)),
        "all from the cassette": one(cassette=cassette("new", 52, 0.02)),
        "from the cassette at an unknown cost": one(cassette=cassette("new", 40)),
        "replayed": one(cassette=cassette("replay", 52, 0.02)),
        "stored scores": one(**rescored(kept={A: 999})),
        "rows that changed by rescoring": one(
            **rescored(Matched([WORSE, BETTER, Pair(2, 2, [True, False], [True, True])]))
        ),
        "no row that changed by rescoring": one(**rescored(Matched([Pair(0, 0, [True], [True])]))),
        "a regression against stored results": compared(kept=44, worse=6),
        **{
            f"{better} rows better and {worse} worse than in the last run, p = {p}": one(
                previous=since_last_run(better, worse, p, changed)
            )
            for better, worse, p, changed in (
                *((12, 9, 0.6636, 0), (20, 4, 0.00154, 0), (0, 40, 1e-12, 0), (0, 0, 1.0, 0), (1, 0, 1.0, 1)),
            )
        },
        "a comparison among others": one(**with_baseline(six_worse.among(3, 0.09375))),
        "a model beside its baseline that stopped": results_of(
            MIXED, baseline=[of_baseline(ONE), of_baseline(pending(1, reason="401"))]
        ),
        "errors of a baseline": results_of(
            [ONE, failed("agent", 1)], baseline=[of_baseline(failed("provider", row)) for row in range(2)]
        ),
        "a baseline without usage": results_of(MIXED, baseline=UNCOUNTED),
        "a baseline with usage of some": results_of(MIXED, baseline=[UNCOUNTED[0], of_baseline(OTHER)]),
        "a baseline of the same name": replace(
            results_of(MIXED, baseline=[*map(of_baseline, MIXED)]), description=EvalDescription("x", "other", 1, {})
        ),
    }  # fmt: skip


def shown() -> dict[str, Iterable[str]]:
    """Return the lines of those summaries, and of some that are cut to the width of a terminal or verbose."""
    five = results_of(FIVE_RUNS, n=5)
    return {
        "a table too wide for the terminal": summary_lines(five, columns=80),
        "a table as wide as the terminal": summary_lines(five, columns=90),
        "spread and noise in verbose output": summary_lines(five, verbose=True)[3:15],
        "a narrow terminal": summary_lines(
            results_of(MIXED, baseline=[of_baseline(ONE), of_baseline(OTHER)]), columns=20
        ),
        "single runs in verbose output": summary_lines(results_of(MIXED, n=3), verbose=True),
        **{name: all_lines(results) for name, results in evals().items()},
    }


def test_a_summary_is_shown_line_by_line(golden: Golden) -> None:
    golden({**shown(), **last_lines()})


def test_a_power_that_rounds_to_enough_is_not_called_low() -> None:
    def lines(chance: float) -> list[str]:
        verdict = gates.decide(PASS_RATE, runs_for(PASS_RATE, row(0, 1), RULE))
        verdicts = [replace(verdict, power=gates.Power(chance, 41))]
        return [line for line in verdict_lines(replace(results_of(row(0, 1)), verdicts=verdicts)) if "low" in line]

    assert (len(lines(0.794)), lines(0.796)) == (1, [])


def answered(equal: int, rows: int = 10, *, passes: int = 1, extra: dict[str, Any] | None = None) -> str:
    """Return the summary of rows with two runs each: `equal` rows have two equal answers, `passes` rows pass."""
    records = [
        finished({A: float(row < passes)}, row, run, answer="same" if row < equal else f"{run}")
        for row in range(rows)
        for run in range(2)
    ]
    return "\n".join(all_lines(results_of(records, n=2, extra=extra)))


def test_equal_answers_in_most_rows_are_reported_unless_they_are_right() -> None:
    told = "9 of 10 rows gave 2 equal answers, so pass@k says no more than pass@1: "

    assert f"{told}check that the server samples and honours the seed" in answered(9, passes=0)
    assert f"{told}the temperature is 0" in answered(9, passes=0, extra={"sampling": {"temperature": 0.0}})
    few_or_right = [answered(8), answered(10, passes=10), answered(1, rows=1, passes=0), answered(9, passes=9)]
    assert not [text for text in few_or_right if "equal answers" in text]


COSTS = {"$1.20": (1.2, 0), "cost unknown": (None, 500), "$1.20 (unknown for 4 runs)": (1.2, 4)}


@pytest.mark.parametrize("said", COSTS)
def test_the_header_shows_the_time_and_cost_of_the_last_run(tmp_path: Path, said: str) -> None:
    results = published([finished({A: 1.0})])
    results["summary"] |= {"total_runs": 500, "total_tokens": 625_000, "total_duration_ms": 230_500}
    results["summary"] |= dict(zip(("cost_usd", "cost_unknown"), COSTS[said], strict=True))
    path = tmp_path / "results.json"
    path.write_text(json.dumps(results))

    line = last_run_line(read_head(path))

    assert line == f"last eval run (2026-11-20 14:03 UTC): 500 rollouts, 625,000 tokens, {said}, 3 min 50 s"


def test_the_verdict_on_a_replay_says_so() -> None:
    results = replace(results_of([finished({A: 1.0})]), cassette=cassette("replay", 52))
    line = "replayed from cassettes/x.jsonl: no model was asked"

    assert verdict_lines(results)[0] == line
    assert short_verdict_lines(results)[0] == line
    assert line in brief_lines(results)
    assert overview_rows([results])[1][0] == "x (replayed)"


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


def test_verbose_says_why_the_interval_of_a_mean_reaches_far_to_one_side() -> None:
    graded, right = ([finished({A: score}, row) for row in range(9)] for score in (0.9, 1.0))

    assert ASSUMED in summary_lines(results_of(graded), verbose=True)
    assert ASSUMED not in [*summary_lines(results_of(graded)), *summary_lines(results_of(right), verbose=True)]


def test_a_threshold_that_is_nearly_one_is_not_shown_as_one() -> None:
    assert ">= 0.99999999 " in summary_lines(results_of([finished({A: 1.0})], thresholds={A: 0.99999999}))[1]


RULE = PassRule((A,))
REJECTED = "the server answered 400 Bad Request: temperature is not supported"


def stopped(reason: StopReason, text: str, missing: list[RunRecord]) -> list[str]:
    """Return the lines before the pass rate of an eval that stopped after one run of each row but the `missing`."""
    records = [finished({A: 1.0}, row) for row in range(10)]
    return verdict_lines(replace(results_of([*records, *missing], stopped=text), stop_reason=reason))[:-1]


def never(n: int, reason: str | None = None) -> list[RunRecord]:
    return [pending(100 + row, reason=reason) for row in range(n)]


def part(records: list[RunRecord], **fields: object) -> Results:
    return replace(results_of(records), partial=True, n_planned=40, **fields)


def gated(records: list[RunRecord], *rules: GateRule, scorers: tuple[str, ...] = (A,)) -> list[str]:
    """Return the lines below gates, without those on power."""
    made = results_of(records, scorers=scorers)
    verdicts = [gates.decide(rule, runs_for(rule, records, made.pass_rule)) for rule in rules]
    shown = verdict_lines(replace(made, verdicts=verdicts))
    return [line for line in shown if line.startswith("  ") and "low power" not in line]


def row(index: int, *scores: float) -> list[RunRecord]:
    return [finished({A: score}, index, run) for run, score in enumerate(scores)]


def cause_told(n: int, n_runs: int, error: str = REJECTED, boundary: Boundary = "model") -> list[str]:
    """Return the lines on one error that `n` of the runs met."""
    return cause_lines(causes_of([failed(boundary, row, error=error) for row in range(n)], RULE), n_runs)


def rows_told(pairs: list[Pair], results: Results, against: Against = "last_run") -> list[str]:
    found = {**last_run(Matched(pairs), "x-0"), "changed_rows": changed_rows(pairs, against)}
    return changed_rows_lines(against, replace(results, **found))


BEGUN = [replace(pending(200 + row), started=True) for row in range(3)]
ERRORS = "46 of 120 runs not measured (limit 10%), mostly 502 Bad Gateway"
PASS_RATE, MEAN = GateRule("pass_rate", 0.9), GateRule("mean", 0.8)
REFUSALS = [
    ChatReply({"role": "assistant", "content": None, "refusal": "I will not add"}),
    ChatReply({"role": "assistant", "content": ""}, finish_reason="content_filter"),
]
SEVEN = [f"KeyError: '{letter}'" for letter in "abcdefg" for _ in range(ord("h") - ord(letter))]
OPPOSITE = [finished({A: 1.0, B: 0.0}, 0), finished({A: 0.0, B: 1.0}, 1)]
ROSE, FELL = Pair(0, 0, [True], [False]), Pair(0, 0, [False], [True])
CHANGED = [ROSE, Pair(1, 4, [False], [True]), Pair(2, 2, [True], [True])]
CHANGED_OF_FIVE = [Pair(0, 0, [True, False], [False]), Pair(12, 12, [True, False, True, False, False], [True] * 5)]


def last_lines() -> dict[str, Iterable[str]]:
    whole = part([finished({A: 1.0}), finished({A: 0.0}, 1), failed("provider", 2)])
    return {
        "interrupted before many": stopped("interrupt", "interrupted", never(1_001)),
        "interrupted before and within some": stopped("interrupt", "interrupted", [*never(7), *BEGUN]),
        "interrupted within some": stopped("interrupt", "interrupted", BEGUN),
        "interrupted at the end": stopped("interrupt", "interrupted", []),
        "too many errors": stopped("max_errors", ERRORS, never(2)),
        "maxfail": stopped("maxfail", "stopped by x.toml::x[row0-run0] (--maxfail=1)", never(1)),
        "runs that never ran": verdict_lines(
            results_of([finished({A: 1.0}), *never(2, "its host was lost"), pending(50)])
        )[:-1],
        "a part": verdict_lines(whole),
        "a part that one function decides": verdict_lines(
            replace(whole, pass_rule=replace(whole.pass_rule, scorers=(A, B), decide=A))
        ),
        "the table of a part": statistics_lines(whole, verbose=True),
        "a smoke test": verdict_lines(part([finished({A: 1.0}), finished({A: 0.0}, 1)], smoke_of=40)),
        "a part that was not measured": verdict_lines(part([failed("provider")])),
        "a part with a baseline": verdict_lines(
            replace(
                results_of([finished({A: 1.0})], baseline=[of_baseline(finished({A: 0.0}))]), partial=True, n_planned=40
            )
        ),
        "worst rows by runs passed": gated(
            [*row(3, 1, 1, 0), *row(5, 1, 1, 1), *row(9, 0, 1, 0), *row(12, 0, 0, 0)], PASS_RATE
        ),
        "worst rows that are equal": gated([record for index in range(8) for record in row(index, 0)], PASS_RATE),
        "worst rows without unmeasured and removed ones": gated(
            [*row(0, 0, 1), failed("provider", 1), removed(2), failed("model", 3), *row(4, 1)], PASS_RATE
        ),
        "worst rows by means": gated([*row(0, 0.9), *row(1, 0.25, 0.5), *row(2, 0.1)], MEAN),
        "worst rows with a crash as the worst answer": gated([*row(0, -0.5), failed("timeout", 1), *row(2, 0.9)], MEAN),
        "worst rows of one function": gated(OPPOSITE, GateRule("pass_rate", 0.9, function=B), scorers=(A, B)),
        "worst rows of two gates": gated(row(0, 0.0), PASS_RATE, GateRule("pass_at", 0.9, k=1)),
        "no worst rows of a gate that holds": gated(row(0, 1.0), PASS_RATE),
        "no worst rows of a gate that was not measured": gated([failed("provider")], PASS_RATE),
        "a cause of the provider": cause_told(36, 40, "the server answered 502 Bad Gateway (5 tries)", "provider"),
        "a cause of the agent": cause_told(36, 40, "KeyError: 'x'", "agent"),
        "a rejected request of many": cause_told(36, 120),
        "a rejected request of more than 5 percent": cause_told(6, 119),
        "a rejected request of the only run": cause_told(1, 1),
        "a rejected request of 5 percent": cause_told(6, 120),
        "a rejected request of one run": cause_told(1, 16),
        **{f"refusal {n}": cause_told(36, 40, str(refusal_error(reply))) for n, reply in enumerate(REFUSALS)},
        "many causes": cause_lines(
            causes_of([failed("provider", row, error=error) for row, error in enumerate(SEVEN)], RULE),
            len(SEVEN), of=" of the baseline",
        ),
        "changed rows": rows_told(CHANGED, results_of([*row(0, 1), *row(1, 0), *row(2, 1)])),
        "changed rows of five runs": rows_told(
            CHANGED_OF_FIVE, results_of([*row(12, 1, 0, 1, 0, 0), *row(0, 1, 0)], n=5)
        ),
        "many changed rows": rows_told(
            [Pair(row, row, [False], [True]) for row in range(14)],
            results_of([record for index in range(14) for record in row(index, 0)]),
        ),
        "no changed row": rows_told([Pair(0, 0, [True], [True])], results_of(row(0, 1))),
        "a changed row with a removed run": rows_told([FELL], results_of([removed(), finished({A: 0.0}, 0, 1)], n=2)),
        "a row that rescoring changed": rows_told(
            [Pair(0, 0, [False, True], [False, False])], results_of(row(0, 0, 1), n=2), "rescored"
        ),
        **{
            f"a command for a folder with {what}": rows_told(
                [FELL], replace(results_of(row(0, 0)), provenance={"run_dir": folder})
            )
            for what, folder in (("blanks", "../my evals/x-1"), ("a dash", "-runs/x-1"), ("a name", ".osmosis/runs/-x"))
        },
    }  # fmt: skip
