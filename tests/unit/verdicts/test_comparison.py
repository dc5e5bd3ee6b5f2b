"""Comparisons of rows: what a difference means, and the gate's three verdicts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.stats import holm
from pytest_osmosis.verdicts.comparison import (
    BaselineComparison,
    Matched,
    Pair,
    against_baseline,
    decide,
    direction,
)

RULE = GateRule("max_regression", -0.02)
Runs = Sequence[bool | None]
YES, NO, NONE = [True], [False], [None]


def pair(new: Runs, old: Runs) -> Pair:
    """Return a pair of rows, whose indices do not matter."""
    return Pair(0, 0, new, old)


def pairs(**counts: int) -> list[Pair]:
    """Return rows of one run each: `kept`, `better`, `worse`, `lost` (not passed on either side)."""
    kinds = {"kept": pair(YES, YES), "better": pair(YES, NO), "worse": pair(NO, YES), "lost": pair(NO, NO)}
    return [kinds[kind] for kind, n in counts.items() for _ in range(n)]


def compared(found: Sequence[Pair], allowed: float = 0.02) -> BaselineComparison:
    return against_baseline("base.json", Matched(found), allowed=allowed)


def p_of(compared: BaselineComparison) -> float:
    assert compared.found.p_adjusted is not None
    return compared.found.p_adjusted


# -- what the difference means -----------------------------------------------------------------------------


def test_the_difference_comes_with_its_interval_and_its_exact_p() -> None:
    found = compared(pairs(kept=80, worse=15, better=5)).found

    interval = found.difference_interval
    assert interval is not None
    assert found.difference == pytest.approx(-0.10)
    assert found.test == "McNemar, exact"
    assert found.p_adjusted == found.p_value == pytest.approx(0.0413894653)
    assert interval.low < -0.10 < interval.high < 0
    assert found.pass_rate == pytest.approx(0.85)
    assert found.baseline_pass_rate == pytest.approx(0.95)
    assert found.meaning == "regression"


@pytest.mark.parametrize(
    ("found", "allowed", "meaning"),
    [
        (pairs(kept=94, worse=6), 0.0, "regression"),
        (pairs(kept=94, worse=6), 0.06, "within"),
        (pairs(kept=94, better=6), 0.0, "improvement"),
        (pairs(kept=95, worse=5), 0.0, "noise"),
        (pairs(kept=10), 0.0, "noise"),
        (pairs(kept=293, worse=7), 7 / 300, "within"),
    ],
    ids=["six fell", "six fell, six may", "six rose", "five fell", "none moved", "exactly the allowance, rounded"],
)
def test_only_a_significant_difference_is_called_better_or_worse(
    found: Sequence[Pair], allowed: float, meaning: str
) -> None:
    assert compared(found, allowed).found.meaning == meaning


def test_runs_of_a_row_are_averaged_and_rows_that_one_side_has_not_measured_counted() -> None:
    found = compared([pair([True, False], [True, True]), pair([True, True], [True, False, True, False])]).found

    assert (found.rows, found.better, found.worse) == (2, 1, 1)
    assert (found.pass_rate, found.baseline_pass_rate) == (0.75, 0.75)

    partly = compared([pair(YES, YES), pair(NONE, YES), pair(YES, NONE), pair([None, False], YES), pair([], YES)]).found

    assert (partly.rows, partly.unmeasured) == (2, 3)


def test_a_comparison_without_a_row_claims_nothing() -> None:
    found = compared([pair(NONE, YES)]).found

    assert (found.rows, found.better, found.worse, found.regression) == (0, 0, 0, False)


def test_an_entry_differs_if_p_lies_below_the_level() -> None:
    found = [direction(change, p) for change, p in ((0.1, 0.0499), (-0.1, 0.0499), (0.1, 0.05), (-0.1, 0.05))]

    assert found == ["better", "worse", "chance", "chance"]


def test_among_several_evals_the_p_is_holms() -> None:
    found = [compared(pairs(kept=90, worse=6)), compared(pairs(kept=90, worse=9, better=1))]
    ps = [p_of(one) for one in found]
    assert [one.found.meaning for one in found] == ["regression", "regression"]

    together = [one.among(2, p) for one, p in zip(found, holm(ps), strict=True)]

    assert [p_of(one) for one in together] == [pytest.approx(2 * 0.021484375), pytest.approx(2 * 0.021484375)]
    third = found[0].among(3, 3 * ps[0])
    assert (third.found.meaning, decide(RULE, third).state) == ("noise", "holds")


def test_a_p_of_exactly_the_level_may_be_chance_and_a_correction_makes_rows_too_few() -> None:
    assert compared(pairs(worse=9)).among(2, 0.05).found.meaning == "noise"

    found = compared(pairs(worse=6))
    assert decide(RULE, found).state == "fails"
    verdict = decide(RULE, found.among(3, 3 * p_of(found)))
    assert verdict.state == "not measured"
    assert verdict.text.endswith("6 rows cannot show a regression: p is at least 0.094")
    assert decide(RULE, compared(pairs(kept=6)).among(3, 1.0)).state == "not measured"
    assert decide(RULE, compared(pairs(kept=7)).among(3, 1.0)).state == "holds"


# -- the gate ----------------------------------------------------------------------------------------------


GATED: dict[str, tuple[Sequence[Pair], str, str]] = {
    "fell": (
        pairs(kept=90, worse=10),
        "fails",
        "pass rate 0.900, baseline 1.000, same 100 rows; -0.100: a regression (p = 0.002)",
    ),
    "fell by chance": (pairs(kept=90, worse=6, better=4), "holds", "may be chance"),
    "rose": (pairs(kept=90, better=10), "holds", "an improvement"),
    "fell a little": (pairs(kept=994, worse=6), "holds", "lower, but within the 0.02 that max_regression allows"),
    "too few": (pairs(worse=5), "not measured", "5 rows cannot show a regression: p is at least 0.062"),
    "too few, none fell": (
        pairs(kept=5),
        "not measured",
        "0.000: no difference (p = 1); 5 rows cannot show a regression",
    ),
    "too few, all rose": (pairs(better=5), "not measured", "5 rows cannot show a regression"),
    "a single one": (pairs(kept=1), "not measured", "1 row cannot show a regression: p is at least 1"),
    "enough": (pairs(kept=6), "holds", "0.000: no difference (p = 1)"),
    "unmeasured": ([pair(NONE, YES)], "not measured", "no row was measured on both sides"),
    "no row": ([], "not measured", "the baseline has none of these rows"),
}


@pytest.mark.parametrize(("found", "state", "words"), GATED.values(), ids=GATED)
def test_the_gate_fails_only_for_a_regression(found: Sequence[Pair], state: str, words: str) -> None:
    verdict = decide(RULE, compared(found))

    assert (verdict.title, verdict.state) == ("max_regression <= 0.02", state)
    assert words in verdict.text
    assert ("regression" in verdict.text.replace("max_regression", "")) == (state == "fails" or "cannot" in words)


UNMEASURED: dict[str, tuple[Sequence[Pair], str]] = {
    "six may have fallen": ([*pairs(kept=94), *[pair(NONE, YES)] * 6], "not measured"),
    "six passed, whatever they did before": ([*pairs(kept=94), *[pair(YES, NONE)] * 6], "holds"),
    "six may have passed before": ([*pairs(kept=84, lost=10), *[pair(NO, NONE)] * 6], "not measured"),
    "six may have been anything, before and now": ([*pairs(kept=94), *[pair(NONE, NONE)] * 6], "not measured"),
    "five cannot show it": ([*pairs(kept=95), *[pair(NONE, YES)] * 5], "holds"),
    "fell whatever one gave": ([*pairs(kept=90, worse=20), pair(NONE, YES)], "fails"),
    "one may have risen": ([*pairs(kept=90, worse=6), pair(NONE, NO)], "not measured"),
    "some runs of six rows may have fallen": (
        [*pairs(kept=94), *[pair([True, None], [True, True])] * 6],
        "not measured",
    ),
    "some runs of five rows cannot show it": ([*pairs(kept=95), *[pair([True, None], [True, True])] * 5], "holds"),
    "taken out by the grader": ([*pairs(kept=90), *[pair([], YES)] * 10], "holds"),
}


@pytest.mark.parametrize(("found", "state"), UNMEASURED.values(), ids=UNMEASURED)
def test_a_verdict_that_unmeasured_runs_could_change_is_not_measured(found: Sequence[Pair], state: str) -> None:
    verdict = decide(RULE, compared(found))

    assert verdict.state == state
    assert ("could change that" in verdict.text) == (state == "not measured")


@pytest.mark.parametrize(("n", "state"), [(2, "not measured"), (4, "holds")])
def test_what_unmeasured_runs_could_change_is_corrected_for_several_evals_too(n: int, state: str) -> None:
    found = compared([*pairs(kept=90, worse=6), pair(NONE, YES)])  # p = 2 * 0.5**6, or 2 * 0.5**7 if that fell too

    assert decide(RULE, found.among(n, n * p_of(found))).state == state


known = st.lists(st.booleans(), min_size=1, max_size=3)
partly = st.lists(st.sampled_from([True, False, None]), min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(known, known), min_size=1, max_size=12), st.data())
def test_a_decided_verdict_holds_for_both_extremes_of_missing_runs(
    whole: list[tuple[list[bool], list[bool]]], data: st.DataObject
) -> None:
    found = [pair(data.draw(partly), old) for _, old in whole]
    verdict = decide(RULE, compared(found))
    if verdict.state == "not measured":
        return
    for fill in (False, True):
        filled = [pair([fill if run is None else run for run in each.new], each.old) for each in found]
        assert decide(RULE, compared(filled)).state in (verdict.state, "not measured")


def test_its_power_is_that_of_a_loss_of_five_points_more_than_is_allowed() -> None:
    verdict = decide(RULE, compared(pairs(kept=900, worse=50, better=50)))

    # se = sqrt(0.1 / 1000): a loss of 0.07 must be seen as more than 1.96 se = 0.0196, so more than 0.02
    assert verdict.power is not None
    assert verdict.power.chance == pytest.approx(1.0, abs=1e-6)
    few = decide(RULE, compared(pairs(kept=80, worse=10, better=10)))
    # se = 0.04495: 0.07 - 1.96 se = -0.0181 lies 0.403 se below
    assert few.power is not None
    assert few.power.chance == pytest.approx(0.3436, abs=1e-3)
    assert few.power.rows == 324
