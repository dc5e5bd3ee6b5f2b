"""Comparisons of rows: which are the same, what a difference means, and the gate's three verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.stats import holm
from pytest_osmosis.verdicts.comparison import (
    BaselineComparison,
    Matched,
    Pair,
    RowRuns,
    against_baseline,
    changed_rows,
    compare,
    compared_with_first,
    decide,
    direction,
    matched,
    matched_by_run,
)
from tests.unit.made import ends

RULE = GateRule("max_regression", -0.02)
Runs = Sequence[bool | None]
YES, NO, NONE = [True], [False], [None]


pair = partial(Pair, 0, 0)  # the indices of rows do not matter


def pairs(**counts: int) -> list[Pair]:
    """Return rows of one run each: `kept`, `better`, `worse`, `lost` (not passed on either side)."""
    kinds = {"kept": pair(YES, YES), "better": pair(YES, NO), "worse": pair(NO, YES), "lost": pair(NO, NO)}
    return [kinds[kind] for kind, n in counts.items() for _ in range(n)]


def compared(found: Sequence[Pair], allowed: float = 0.02) -> BaselineComparison:
    return against_baseline("base.json", Matched(found), allowed=allowed)


def p_of(compared: BaselineComparison) -> float:
    assert compared.found.p_adjusted is not None
    return compared.found.p_adjusted


def test_the_difference_comes_with_its_interval_and_its_exact_p() -> None:
    found = compared(pairs(kept=80, worse=15, better=5)).found

    assert found.difference_interval is not None
    low, high = ends(found.difference_interval)
    assert low < -0.10 < high < 0
    assert found.difference == pytest.approx(-0.10)
    assert (found.pass_rate, found.baseline_pass_rate) == pytest.approx((0.85, 0.95))
    assert found.p_adjusted == found.p_value == pytest.approx(0.0413894653)
    assert (found.test, found.meaning) == ("McNemar, exact", "regression")


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
def test_only_a_significant_difference_is_called_better_or_worse(found: Any, allowed: float, meaning: str) -> None:
    assert compared(found, allowed).found.meaning == meaning


def test_runs_of_a_row_are_averaged_and_rows_that_one_side_has_not_measured_counted() -> None:
    found = compared([pair([True, False], [True, True]), pair([True, True], [True, False, True, False])]).found
    partly = compared([pair(YES, YES), pair(NONE, YES), pair(YES, NONE), pair([None, False], YES), pair([], YES)]).found

    assert (found.rows, found.better, found.worse) == (2, 1, 1)
    assert (found.pass_rate, found.baseline_pass_rate) == (0.75, 0.75)
    assert (partly.rows, partly.unmeasured) == (2, 3)


def test_what_has_no_measured_row_claims_nothing_and_is_no_entry_to_compare() -> None:
    found = compared([pair(NONE, YES)]).found
    mine, others = [RowRuns(0, "a", YES)], [RowRuns(0, "b", NONE)]

    assert (found.rows, found.better, found.worse, found.regression) == (0, 0, 0, False)
    assert compared_with_first(mine, [others]) == compared_with_first(others, [mine]) == [None]


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


COULD = "could change that"
VERDICTS: dict[str, tuple[Sequence[Pair], str, str]] = {
    "fell": (
        pairs(kept=90, worse=10),
        "fails",
        "pass rate 0.900, baseline 1.000, same 100 rows; -0.100: a regression (p = 0.002)",
    ),
    "fell by chance": (pairs(kept=90, worse=6, better=4), "holds", "may be chance"),
    "rose": (pairs(kept=90, better=10), "holds", "an improvement"),
    "fell a little": (pairs(kept=994, worse=6), "holds", "lower, but within the 0.02 that max_regression allows"),
    "too few": (pairs(worse=5), "not measured", "5 rows cannot show a regression: p is at least 0.062"),
    "too few, none fell": (pairs(kept=5), "not measured", "no difference (p = 1); 5 rows cannot show a regression"),
    "too few, all rose": (pairs(better=5), "not measured", "5 rows cannot show a regression"),
    "a single one": (pairs(kept=1), "not measured", "1 row cannot show a regression: p is at least 1"),
    "enough": (pairs(kept=6), "holds", "0.000: no difference (p = 1)"),
    "unmeasured": ([pair(NONE, YES)], "not measured", "no row was measured on both sides"),
    "no row": ([], "not measured", "the baseline has none of these rows"),
    "six may have fallen": ([*pairs(kept=94), *[pair(NONE, YES)] * 6], "not measured", COULD),
    "six passed, whatever they did before": ([*pairs(kept=94), *[pair(YES, NONE)] * 6], "holds", ""),
    "six may have passed before": ([*pairs(kept=84, lost=10), *[pair(NO, NONE)] * 6], "not measured", COULD),
    "six may have been anything": ([*pairs(kept=94), *[pair(NONE, NONE)] * 6], "not measured", COULD),
    "five cannot show it": ([*pairs(kept=95), *[pair(NONE, YES)] * 5], "holds", ""),
    "fell whatever one gave": ([*pairs(kept=90, worse=20), pair(NONE, YES)], "fails", ""),
    "one may have risen": ([*pairs(kept=90, worse=6), pair(NONE, NO)], "not measured", COULD),
    "some runs of six may": ([*pairs(kept=94), *[pair([True, None], [True, True])] * 6], "not measured", COULD),
    "some runs of five cannot show it": ([*pairs(kept=95), *[pair([True, None], [True, True])] * 5], "holds", ""),
    "taken out by the grader": ([*pairs(kept=90), *[pair([], YES)] * 10], "holds", ""),
}


@pytest.mark.parametrize(("found", "state", "words"), VERDICTS.values(), ids=VERDICTS)
def test_the_gate_fails_only_for_a_regression_that_no_unmeasured_run_could_change(
    found: Sequence[Pair], state: str, words: str
) -> None:
    verdict = decide(RULE, compared(found))

    assert (verdict.title, verdict.state) == ("max_regression <= 0.02", state)
    assert words in verdict.text
    assert (COULD in verdict.text) == (words == COULD)
    if words != COULD:
        said = verdict.text.replace("max_regression", "")
        assert ("regression" in said) == (state == "fails" or "cannot" in words)


@pytest.mark.parametrize(("n", "state"), [(2, "not measured"), (4, "holds")])
def test_what_unmeasured_runs_could_change_is_corrected_for_several_evals_too(n: int, state: str) -> None:
    found = compared([*pairs(kept=90, worse=6), pair(NONE, YES)])  # p = 2 * 0.5**6, or 2 * 0.5**7 if that fell too

    assert decide(RULE, found.among(n, n * p_of(found))).state == state
    assert decide(RULE, found.among(3, 0.1)).state == "holds"  # with that, p = 0.1 * 0.5, which is not below the level


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


@pytest.mark.parametrize(
    ("found", "chance", "rows"),
    [
        # se = sqrt(0.1 / 1000): a loss of 0.07 must be seen as more than 1.96 se = 0.0196, so more than 0.02
        (pairs(kept=900, worse=50, better=50), 1.0, None),
        # se = 0.04495: 0.07 - 1.96 se = -0.0181 lies 0.403 se below
        (pairs(kept=80, worse=10, better=10), 0.3436, 324),
    ],
)
def test_its_power_is_that_of_a_loss_of_five_points_more_than_is_allowed(found: Any, chance: float, rows: Any) -> None:
    power = decide(RULE, compared(found)).power

    assert power is not None
    assert power.chance == pytest.approx(chance, abs=1e-3)
    assert rows in (None, power.rows)


def rows(*digests: str, first: int = 0) -> list[RowRuns]:
    return [RowRuns(first + index, digest, YES) for index, digest in enumerate(digests)]


def test_rows_are_matched_by_content_in_any_order_and_equal_ones_in_order_and_others_counted() -> None:
    new, old = [RowRuns(0, "a", YES), RowRuns(1, "b", NO)], [RowRuns(7, "b", YES), RowRuns(9, "a", NO)]
    equal, before = [RowRuns(row, "a", YES) for row in range(3)], [RowRuns(0, "a", NO), RowRuns(1, "a", YES)]

    assert matched(new, old) == Matched([Pair(0, 9, YES, NO), Pair(1, 7, NO, YES)])
    assert matched(equal, before) == Matched([Pair(0, 0, YES, NO), Pair(1, 1, YES, YES)], added=1)
    found = matched(rows("a", "b2", "c", "d"), rows("a", "b", "c") + rows("gone", "away", first=8))
    assert (len(found.pairs), found.added, found.removed, found.changed) == (2, 1, 2, 1)


def test_verdicts_on_the_same_rollouts_are_matched_run_by_run() -> None:
    before = {RunId(0, 0): True, RunId(0, 1): False, RunId(1, 0): False, RunId(2, 0): True, RunId(4, 0): True}
    after = {RunId(0, 0): False, RunId(0, 1): True, RunId(1, 0): True, RunId(2, 0): False, RunId(3, 0): True}

    found = compare(matched_by_run(after, before))

    assert found.paired is not None
    assert (found.n_rows, found.paired.better, found.paired.worse) == (3, 1, 1), "row 0 has as many passes as before"
    assert [(row.row_index, row.change) for row in found.changed("rescored")] == [(2, "worse"), (1, "better")]


def test_the_worst_rows_come_first_and_equal_shares_did_not_change() -> None:
    pairs = [
        Pair(0, 0, [True, True], YES),
        Pair(1, 1, [True, True, False], [False, False]),
        Pair(2, 2, [True, None, False], [True, True, True]),
        Pair(3, 8, NO, YES),
        Pair(4, 4, NO, YES),
        Pair(5, 5, [True] * 3 + [False] * 6, [True, False, False]),
        Pair(6, 6, NONE, YES),
        Pair(7, 7, [], YES),
    ]

    changed = changed_rows(pairs, "last_run")

    assert [(row.row_index, row.earlier_row_index, row.new, row.old) for row in changed] == [
        (3, 8, (0, 1), (1, 1)),
        (4, 4, (0, 1), (1, 1)),
        (2, 2, (1, 2), (3, 3)),
        (1, 1, (2, 3), (0, 2)),
    ]
    assert [row.change for row in changed] == ["worse", "worse", "worse", "better"]
