"""The last lines of a summary: why an eval stopped, what passed, causes of failures, and rows that changed."""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs
from msgspec.structs import replace

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.models.base import ChatReply, refusal_error
from pytest_osmosis.record.lifecycle import StopReason
from pytest_osmosis.record.run_record import Boundary, RunRecord
from pytest_osmosis.report.statistics import changed_rows_lines, statistics_lines
from pytest_osmosis.report.summary import cause_lines, verdict_lines
from pytest_osmosis.results.results import Results, causes_of, runs_for
from pytest_osmosis.verdicts.comparison import Against, Matched, Pair, changed_rows
from pytest_osmosis.verdicts.gates import Power, decide
from pytest_osmosis.verdicts.pass_rule import PassRule
from tests.golden import Golden
from tests.unit.made import A, B, failed, finished, last_run, of_baseline, pending, removed, results_of

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
    verdicts = [decide(rule, runs_for(rule, records, made.pass_rule)) for rule in rules]
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


BEGUN = [pending(200 + row)._replace(started=True) for row in range(3)]
ERRORS = "46 of 120 runs not measured (limit 10%), mostly 502 Bad Gateway"
PASS_RATE, MEAN = GateRule("pass_rate", 0.9), GateRule("mean", 0.8)
REFUSALS = [
    ChatReply({"role": "assistant", "content": None, "refusal": "I will not add"}),
    ChatReply({"role": "assistant", "content": ""}, finish_reason="content_filter"),
]
SEVEN = [f"KeyError: '{letter}'" for letter in "abcdefg" for _ in range(ord("h") - ord(letter))]
OPPOSITE = [finished({A: 1.0, B: 0.0}, 0), finished({A: 0.0, B: 1.0}, 1)]
BETTER, WORSE = Pair(0, 0, [True], [False]), Pair(0, 0, [False], [True])
CHANGED = [BETTER, Pair(1, 4, [False], [True]), Pair(2, 2, [True], [True])]
CHANGED_OF_FIVE = [Pair(0, 0, [True, False], [False]), Pair(12, 12, [True, False, True, False, False], [True] * 5)]


def shown() -> dict[str, Iterable[str]]:
    """Return lines by what is to be seen in them."""
    whole = part([finished({A: 1.0}), finished({A: 0.0}, 1), failed("provider", 2)])
    return {
        "interrupted before many": stopped("interrupt", "interrupted", never(1_001)),
        "interrupted before and within some": stopped("interrupt", "interrupted", [*never(7), *BEGUN]),
        "interrupted within some": stopped("interrupt", "interrupted", BEGUN),
        "interrupted at the end": stopped("interrupt", "interrupted", []),
        "too many errors": stopped("max_errors", ERRORS, never(2)),
        "too many errors at the end": stopped("max_errors", ERRORS, []),
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
        "a cause of the time": cause_told(36, 40, "KeyError: 'x'", "timeout"),
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
        "a changed row with a removed run": rows_told([WORSE], results_of([removed(), finished({A: 0.0}, 0, 1)], n=2)),
        "a row that rescoring changed": rows_told(
            [Pair(0, 0, [False, True], [False, False])], results_of(row(0, 0, 1), n=2), "rescored"
        ),
        **{
            f"a command for a folder with {what}": rows_told(
                [WORSE], replace(results_of(row(0, 0)), provenance={"run_dir": folder})
            )
            for what, folder in (("blanks", "../my evals/x-1"), ("a dash", "-runs/x-1"), ("a name", ".osmosis/runs/-x"))
        },
    }  # fmt: skip


def test_the_last_lines_of_a_summary(golden: Golden) -> None:
    golden(shown())


def test_a_power_that_rounds_to_enough_is_not_called_low() -> None:
    def lines(chance: float) -> list[str]:
        verdict = structs.replace(decide(PASS_RATE, runs_for(PASS_RATE, row(0, 1), RULE)), power=Power(chance, 41))
        return [line for line in verdict_lines(replace(results_of(row(0, 1)), verdicts=[verdict])) if "low" in line]

    assert (len(lines(0.794)), lines(0.796)) == (1, [])
