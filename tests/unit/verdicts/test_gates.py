"""The outcome of a run, and of a gate: three-valued verdicts, their bounds, their power and their words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis import stats
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.verdicts.gates import Power, Runs, Short, State, decide, short_of
from pytest_osmosis.verdicts.pass_rule import (
    Kind,
    Outcome,
    PassRule,
    judged_by_no_score,
    kind_of,
    reason_of,
    score_line,
)
from tests.unit.made import BROKE, A, B, failed, finished, pending, removed, rolled

rule, mean, at = partial(GateRule, "pass_rate"), partial(GateRule, "mean"), partial(GateRule, k=2)


def tally(passed: int, not_passed: int, unmeasured: int) -> Runs:
    """One run a row."""
    return [[1.0]] * passed + [[0.0]] * not_passed + [[None]] * unmeasured


@pytest.mark.parametrize(
    ("runs", "declared", "state"),
    [
        ([[-0.5], [0.5], [None]], None, "not measured"),  # it may have scored anything
        ([[0.5], [9.0], [None]], None, "not measured"),
        ([[0.5], [1.0], [None]], None, "holds"),
        ([[-0.5], [0.5], [0.5]], None, "holds"),
        ([[-0.5], [0.5], [None]], (-1.0, 1.0), "not measured"),  # a mean of -0.333 to 0.333
        ([[0.9], [0.9], [0.9], [None]], (-1.0, 1.0), "holds"),
        ([[-0.9], [-0.9], [-0.9], [None]], (-1.0, 1.0), "fails"),
        ([[0.9], [0.9], [3.0], [None]], (-1.0, 1.0), "not measured"),  # stored before the range was declared
        ([[5.0], [0.0], [None]], (2.0, 9.0), "holds"),  # a crash counts as 0.0
    ],
)
def test_only_a_known_range_bounds_the_mean_of_unmeasured_runs(runs: Runs, declared: Any, state: State) -> None:
    verdict = decide(GateRule("mean", 0.1), runs, declared)

    assert verdict.state == state
    assert ("score_ranges" in verdict.text) == (state == "not measured" and (declared is None or runs[2] == [3.0]))


@pytest.mark.parametrize("minimum", [0.0, 0.7, 1.0])
def test_a_gate_over_no_measured_run_is_never_decided(minimum: float) -> None:
    for runs in (tally(0, 0, 0), tally(0, 0, 5)):
        verdict = decide(rule(minimum), runs)
        assert (verdict.state, verdict.text, verdict.value) == ("not measured", "no run was measured", None)


@pytest.mark.parametrize("digits", [1, 2])
def test_a_pass_rate_exactly_at_the_minimum_holds(digits: int) -> None:
    total = 10**digits
    for passed in range(1, total):
        gate = rule(float(str(Decimal(passed).scaleb(-digits))))
        states = [decide(gate, tally(n * by, (total - n) * by, 0)).state for n, by in ((passed, 1), (passed, 3))]
        assert (*states, decide(gate, tally(passed - 1, total - passed + 1, 0)).state) == ("holds", "holds", "fails")


TORN: Runs = [[1.0, 0.0, None], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]
"""pass@2 of the rows: 2/3 or 1, 0, 1; pass^2: 0 or 1/3, 0, 1."""


@pytest.mark.parametrize(
    ("gate", "runs", "state", "text"),
    [
        (rule(0.7), tally(8, 2, 0), "holds", "0.800 (8 of 10 runs passed)"),
        (rule(0.7), tally(2000, 1000, 0), "fails", "0.667 (2,000 of 3,000 runs passed)"),
        (rule(0.7), tally(7, 0, 3), "holds", "0.700 (7 of 10 runs passed, 3 not measured and counted as not passed)"),
        (rule(0.7), tally(5, 3, 2), "not measured", "between 0.500 and 0.700 (5 of 10 runs passed, 2 not measured)"),
        (
            *(rule(0.7), tally(4, 4, 2), "fails"),
            "0.400 (4 of 10 runs passed, 2 not measured; at most 0.600 if they had passed)",
        ),
        (at("pass_at", 0.5), TORN, "holds", "0.556 (3 rows, 1 not measured and counted as not passed)"),
        (at("pass_at", 0.6), TORN, "not measured", "between 0.556 and 0.667 (3 rows, 1 not measured)"),
        (at("pass_at", 0.7), TORN, "fails", "0.556 (3 rows, 1 not measured; at most 0.667 if they had passed)"),
        (at("pass_hat", 0.33), TORN, "holds", "0.333 (3 rows, 1 not measured and counted as not passed)"),
        (at("pass_hat", 0.4), TORN, "not measured", "between 0.333 and 0.444 (3 rows, 1 not measured)"),
        (at("pass_hat", 0.5), TORN, "fails", "0.333 (3 rows, 1 not measured; at most 0.444 if they had passed)"),
        (at("pass_at", 0.5), [[1.0], [0.0, 0.0]], "fails", "0.000 (1 row)"),
        (mean(0.75), [[0.5], [1.0]], "holds", "0.750 (2 runs)"),
        (mean(0.2), [[0.1], [0.2], [0.3]], "holds", "0.200 (3 runs)"),  # 0.6 / 3 is a little less in floats
        (mean(0.5), [[0.5], [1.0], [None]], "holds", "0.500 (3 runs, 1 not measured and counted as 0)"),
        (mean(0.6), [[0.5], [1.0], [None]], "not measured", "between 0.500 and 0.833 (3 runs, 1 not measured)"),
        (
            *(mean(0.9), [[0.5], [1.0], [None]], "fails"),
            "0.500 (3 runs, 1 not measured; at most 0.833 if they had scored 1)",
        ),
        (rule(0.8, "lower"), tally(90, 10, 0), "holds", "0.900, lower bound 0.841 (90 of 100 runs passed)"),
        (mean(0.2, "lower"), [[0.5], [0.5]], "fails", "0.500, lower bound 0.158 (2 runs)"),
        (mean(2.0), [[-2.0], [8.0], [None]], "not measured", "between 1.333 and 4.667 (3 runs, 1 not measured)"),
    ],
)
def test_a_verdict_is_bounded_by_what_unmeasured_runs_may_give_and_names_them(
    gate: GateRule, runs: Runs, state: State, text: str
) -> None:
    verdict = decide(gate, runs, (-2.0, 8.0) if [-2.0] in runs else None)

    assert (verdict.state, verdict.text) == (state, text)
    assert text.removeprefix("between ").startswith(f"{verdict.value:.3f}")


def test_rows_with_fewer_than_k_runs_have_no_pass_at_k() -> None:
    few = decide(GateRule("pass_at", 0.5, k=2), [[1.0], [1.0]])
    assert (few.state, few.text) == ("not measured", "no row has 2 runs")


def outcomes_of(runs: list[list[float | None]], most: int) -> Iterator[list[list[float | None]]]:
    """Some ways in which the runs that were not measured may have ended."""
    gaps = [(row, run) for row, values in enumerate(runs) for run, value in enumerate(values) if value is None]
    for endings in itertools.islice(itertools.product((0.0, 1.0), repeat=len(gaps)), most):
        filled = [list(row) for row in runs]
        for (row, run), ending in zip(gaps, endings, strict=True):
            filled[row][run] = ending
        yield filled


@pytest.mark.parametrize(
    ("minimum", "rule", "state", "compared"),
    [
        (0.8, "lower", "holds", 0.840929),  # 90 of 100
        (0.85, "lower", "fails", 0.840929),
        (0.85, "point", "holds", 0.9),
        (0.93, "point", "fails", 0.9),
        (0.93, "upper", "holds", 0.944456),
        (0.95, "upper", "fails", 0.944456),
    ],
)
def test_a_rule_compares_an_end_of_a_one_sided_interval(minimum: float, rule: Any, state: Any, compared: float) -> None:
    verdict = decide(GateRule("pass_rate", minimum, rule), tally(90, 10, 0))

    assert verdict.state == state
    assert verdict.value == 0.9
    assert verdict.compared == pytest.approx(compared, abs=1e-6)


def test_correlated_runs_of_a_row_widen_the_interval_whose_ends_are_printed() -> None:
    rows = {"fails": [[1.0] * 5] * 18 + [[0.0] * 5] * 2, "holds": [[1.0] * 5] * 10 + [[1.0] * 4 + [0.0]] * 10}
    alike, apart = found = [decide(GateRule("pass_rate", 0.78, "lower"), each) for each in rows.values()]

    assert [each.state for each in found] == list(rows)
    assert alike.value == apart.value == 0.9
    assert alike.compared == pytest.approx(stats.gaffke([[1.0]] * 18 + [[0.0]] * 2, level=0.9).low)
    assert apart.compared == pytest.approx(stats.gaffke(rows["holds"], level=0.9).low)
    graded = [[0.5, 1.0], [0.0, 0.25], [0.75, 0.75], [3.0, 0.0]]
    assert decide(GateRule("mean", 0.2, "lower"), graded).compared == stats.gaffke(graded, 0.0, 3.0, level=0.9).low


@pytest.mark.parametrize(
    ("ends", "most"), [(["point"], 64), pytest.param(["lower", "upper"], 16, marks=pytest.mark.slow)]
)
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_a_verdict_holds_for_every_outcome_of_the_unmeasured_runs(ends: Any, most: int, data: st.DataObject) -> None:
    row = st.lists(st.sampled_from([1.0, 0.0, None]), min_size=2, max_size=3)
    runs = data.draw(st.lists(row, min_size=1, max_size=4))
    metric: Any = data.draw(st.sampled_from(["pass_rate", "pass_at", "pass_hat", "mean"]))
    k = 2 if metric in ("pass_at", "pass_hat") else None
    gate = GateRule(metric, data.draw(st.floats(0, 1)), data.draw(st.sampled_from(ends)), k=k)
    state = decide(gate, runs).state
    if state != "not measured":
        assert {decide(gate, filled).state for filled in outcomes_of(runs, most)} == {state}


def power_of(gate: GateRule, passed: int, not_passed: int) -> Power:
    found = decide(gate, tally(passed, not_passed, 0)).power
    assert found is not None
    return found


def test_power_is_the_chance_to_fail_5_points_below_the_minimum_and_proofs_notice_every_drop() -> None:
    power, proof = power_of(rule(0.7), 35, 15), power_of(GateRule("pass_rate", 0.7, "lower"), 30, 10)

    assert power.chance == pytest.approx(binomial_below(35, 50, 0.65), abs=0.005)
    # a gate on 80 rows fails below 56 passes, and (55.5 / 80 - 0.65) / sqrt(0.65 * 0.35 / 80) = 0.82 is below 0.8416
    assert power.rows == 81
    assert proof.chance > 0.95
    assert proof.rows == 1
    assert [decide(rule(minimum), tally(5, 5, 0)).power for minimum in (0.0, 0.05)] == [None, None]


def binomial_below(passed: int, n: int, rate: float) -> float:
    return math.fsum(math.comb(n, x) * rate**x * (1 - rate) ** (n - x) for x in range(passed))


@pytest.mark.parametrize("kind", ["point", "lower", "upper"])
def test_scores_that_are_far_too_large_have_a_verdict_without_a_power(kind: Any) -> None:
    verdict = decide(GateRule("mean", 0.5, kind), [[1e160], [0.0], [-1e160, 1e308]])

    assert verdict.state in ("holds", "fails")
    assert verdict.power is None


@pytest.mark.parametrize("n_rows", [15, 20, 47, 100, 300])
@pytest.mark.parametrize("minimum", [0.3, 0.7, 0.9])
def test_power_is_close_to_the_share_of_evals_that_fail(n_rows: int, minimum: float) -> None:
    power = power_of(rule(minimum), n_rows, 0)

    least = math.ceil(minimum * n_rows - 1e-9)
    assert power.chance == pytest.approx(binomial_below(least, n_rows, minimum - 0.05), abs=0.035)


@pytest.mark.parametrize("kind", ["point", "upper"])
def test_the_suggested_number_of_rows_reaches_the_power(kind: Any) -> None:
    gate = GateRule("pass_rate", 0.7, kind)
    few = power_of(gate, 21, 9)

    assert few.chance < 0.8
    assert power_of(gate, few.rows - 1, 0).chance < 0.8 <= power_of(gate, few.rows, 0).chance


PASS_AT_2 = GateRule("pass_at", 0.5, k=2)


@pytest.mark.parametrize(
    ("gate", "runs", "short"),
    [
        (rule(0.7), tally(7, 0, 3), Short(0, 1)),  # holds whatever comes
        (rule(0.7), tally(0, 4, 6), Short(1, 0)),  # 6 of 10 at most
        (rule(0.7), tally(5, 2, 3), Short(2, 1)),
        (rule(0.7), tally(1, 0, 99), Short(69, 30)),
        (rule(0.7), tally(0, 0, 10), Short(1, 1)),
        (rule(0.7), [[], []], Short(1, 1)),
        (rule(0.7), [[1.0], [], [None]], Short(1, 1)),  # 1 or 2 of 2: the empty row is none
        (rule(0.5), tally(10, 10, 80), Short(40, 40)),  # whole runs, not rounded up
        (PASS_AT_2, [[1.0, None], [None, None], [0.0, 0.0]], Short(1, 1)),  # rows
        (PASS_AT_2, [[1.0, 0.0], [None, None]], Short(0, 1)),
        (PASS_AT_2, [[1.0], [0.0]], Short(1, 1)),
    ],
)
def test_a_gate_is_as_many_runs_or_rows_from_a_verdict_as_decide_it(gate: GateRule, runs: Runs, short: Short) -> None:
    assert short_of(gate, runs) == short


def pass_rule(decide: str = "all", scorers: tuple[str, ...] = (A, B), **thresholds: float) -> PassRule:
    return PassRule(scorers, 1.0, {f"rewards:{name}": value for name, value in thresholds.items()}, decide)


ONE = pass_rule(scorers=(A,))
BROKEN = finished({}, errors={A: BROKE})
TABLE = {
    "passed": (finished({A: 1.0}), "passed", "", True, None),
    "not passed": (finished({A: 0.2}), "failed", "score 0.2 < 1", True, None),
    "model": (failed("model"), "error", "model: what happened", True, "model"),
    "agent": (failed("agent"), "error", "agent: what happened", True, "agent"),
    "timeout": (failed("timeout"), "error", "timeout: what happened", True, "timeout"),
    "provider": (failed("provider"), "error", "provider: what happened", False, "provider"),
    "host": (failed("host"), "error", "host: what happened", False, "host"),
    "reward error": (BROKEN, "error", "error in rewards:a: ValueError: no", False, "reward"),
    "removed": (removed(), "skipped", "taken out by its grader (remove_sample)", False, None),
    "stopped": (pending(reason="more than max_errors"), "skipped", "more than max_errors", False, None),
    "never ran": (pending(), "skipped", "never ran", False, None),
    "ended before it was scored": (rolled(skip_reason="interrupted"), "skipped", "interrupted", False, None),
}
"""Records, the kind of their tests, their reasons, if they were measured, and their boundaries."""


@pytest.mark.parametrize("row", TABLE)
def test_the_outcome_table(row: str) -> None:
    record, *expected = TABLE[row]

    assert [kind_of(record, ONE), reason_of(record, ONE), ONE.measured(record), ONE.boundary(record)] == expected
    assert ONE.passed(record) == (row == "passed")


@pytest.mark.parametrize(
    ("decide", "scores", "kind"),
    [
        ("all", {A: 1.0, B: 1.0}, "passed"),
        ("all", {A: 1.0, B: 0.9}, "failed"),
        ("all", {A: 0.9, B: 1.0}, "failed"),
        ("any", {A: 0.9, B: 1.0}, "passed"),
        ("any", {A: 0.9, B: 0.9}, "failed"),
        (A, {A: 1.0, B: 0.0}, "passed"),
        (B, {A: 1.0, B: 0.0}, "failed"),
        # an error of B harms only if it decides
        ("all", {A: 1.0}, "error"),
        ("all", {A: 0.0}, "error"),
        ("any", {A: 1.0}, "passed"),
        ("any", {A: 0.0}, "error"),
        (A, {A: 0.0}, "failed"),
        (B, {A: 1.0}, "error"),
    ],
)
def test_only_scores_and_errors_of_deciding_functions_count(decide: str, scores: dict[str, float], kind: Kind) -> None:
    record = finished(scores, errors={} if B in scores else {B: BROKE})

    assert kind_of(record, pass_rule(decide)) == kind
    assert pass_rule(decide).measured(record) == (kind != "error")


def test_only_functions_that_could_have_let_the_run_pass_are_broken() -> None:
    record = finished({A: 1.0}, errors={B: BROKE})
    assert [pass_rule(decide).broken(record) for decide in ("all", "any", A, B)] == [(B,), (), (), (B,)]
    assert pass_rule().broken(failed("model")) == ()


def test_a_functions_own_threshold_overrides_the_common_one_and_the_lowest_score_counts_without_one() -> None:
    judge = PassRule((A, B), 0.5, {B: -2.0})

    assert (judge.threshold(A), judge.threshold(B)) == (0.5, -2.0)
    assert judge.passed(finished({A: 0.5, B: -2.0}))

    records = [finished({A: -0.5}, 0), finished({B: -9.0}, 1), rolled(2, scores={A: -7.0}), finished({A: 2.0}, 3)]

    assert pass_rule().unscored(records, A) == -0.5
    assert pass_rule().unscored(records[1:], A) == 0.0


@pytest.mark.parametrize(
    ("decide", "a", "b", "reward", "least"),
    [
        (A, 0.25, 0.0, 0.25, 0.5),
        (B, 0.25, 0.0, 0.0, 1.0),
        ("all", 1.0, 1.0, 1.0, 1.0),
        ("all", 1.0, 0.5, 0.0, 1.0),
        ("any", 1.0, 0.5, 1.0, 1.0),
    ],
)
def test_the_reward_is_the_score_that_decides_or_1_or_0(
    decide: str, a: float, b: float, reward: Any, least: Any
) -> None:
    rule = pass_rule(decide, a=0.5)

    assert (rule.reward(finished({A: a, B: b})), rule.reward_threshold) == (reward, least)
    assert [rule.reward(each) for each in (failed("model"), finished({}, errors={A: BROKE}), pending())] == [None] * 3


def test_a_score_outside_the_declared_range_is_told_with_both_ends() -> None:
    rule = PassRule((A, B), score_ranges={A: (0.0, 1.5)})

    assert [rule.range_error(A, score) for score in (0.0, 1.5)] == [rule.range_error(B, 9.0), None] == [None, None]
    for score in (-0.5, 2.0):
        assert rule.range_error(A, score) == f"score {score:g} lies outside [scoring] score_ranges, 0 to 1.5"


def test_a_smoke_test_passes_whatever_its_score_and_shows_a_low_one() -> None:
    low = Outcome("failed", "score 0 < 1", "the report", (("stdout", "said"),), 2.0)

    shown = ("osmosis", "smoke: passes whatever its score\nthe report")
    assert judged_by_no_score(low) == Outcome("passed", "", "", (("stdout", "said"), shown), 2.0)
    assert [judged_by_no_score(each) for each in (Outcome("error", "no"), Outcome("passed"))] == [
        Outcome("error", "no"),
        Outcome("passed"),
    ]


def test_the_reason_names_every_deciding_function_that_was_not_met_or_gave_no_score() -> None:
    record = finished({A: 0.25, B: 0.0})

    assert reason_of(record, pass_rule(b=0.5)) == "rewards:a 0.25 < 1, rewards:b 0 < 0.5"
    assert reason_of(record, pass_rule(A)) == "score 0.25 < 1"

    assert reason_of(finished({A: 1.0}), pass_rule()) == "error in rewards:b: gave no score"


def test_a_score_line_never_contradicts_itself() -> None:
    assert (score_line(1.0, 1.0), score_line(1.00000001, 1.0)) == ("score 1 >= 1", "score 1.00000001 >= 1.0")
