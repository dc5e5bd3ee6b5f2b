"""Intervals, and means with random weights: published vectors, closed forms, and what must hold for any rows."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from fractions import Fraction
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks import coverage
from benchmarks.coverage import Kind
from pytest_osmosis.stats import gaffke, intervals, pass_at_k, pass_hat_k
from pytest_osmosis.stats.intervals import RowGroup, chance_at_most
from tests.unit.made import ends

ragged_rows = st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.9, 1.0]), min_size=1, max_size=4), min_size=1, max_size=9)


@pytest.mark.parametrize("n_rows", [1, 2, 10, 300])
@pytest.mark.parametrize("level", [0.9, 0.95])
def test_rows_that_are_all_alike_have_an_interval_in_closed_form(n_rows: int, level: float) -> None:
    share = 1 - (1 - level) ** (1 / n_rows)  # twice the tail: only the extreme row gives any chance

    assert ends(gaffke([[1.0]] * n_rows, level=level)) == pytest.approx((1 - share, 1.0), abs=1e-9)
    assert ends(gaffke([[0.0]] * n_rows, level=level)) == pytest.approx((0.0, share), abs=1e-9)
    half = gaffke([[0.5, 0.75]] * n_rows, 0.25, 2.0, level)
    assert ends(half) == pytest.approx((0.625 - 0.375 * share, 0.625 + 1.375 * share), abs=1e-9)


def test_runs_of_a_row_that_all_agree_count_as_one_and_those_that_differ_narrow_the_interval() -> None:
    assert ends(gaffke([[1.0] * 5] * 8 + [[0.0] * 5] * 2)) == pytest.approx(ends(gaffke([[1.0]] * 8 + [[0.0]] * 2)))
    alike, apart = gaffke([[1.0, 1.0]] * 50 + [[0.0, 0.0]] * 50), gaffke([[1.0, 0.0]] * 100)

    assert apart.high - apart.low < (alike.high - alike.low) / 2


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=3), min_size=1, max_size=12), st.randoms())
def test_the_order_of_rows_changes_no_digit(rows: list[list[float]], rng: Random) -> None:
    shuffled = rng.sample(rows, len(rows))
    assert gaffke(shuffled) == gaffke(rows)


@settings(max_examples=30, deadline=None)
@given(ragged_rows, st.data())
def test_both_ends_rise_if_a_value_rises(rows: list[list[float]], data: st.DataObject) -> None:
    row = data.draw(st.integers(0, len(rows) - 1))
    run = data.draw(st.integers(0, len(rows[row]) - 1))
    raised = [list(values) for values in rows]
    raised[row][run] = data.draw(st.floats(raised[row][run], 1.0))
    before, after = gaffke(rows), gaffke(raised)

    assert before.low <= after.low + 1e-9
    assert before.high <= after.high + 1e-9


@settings(max_examples=30, deadline=None)
@given(ragged_rows)
def test_an_interval_follows_values_that_are_mirrored_or_scaled(rows: list[list[float]]) -> None:
    interval = gaffke(rows)
    mirrored = gaffke([[-value for value in row] for row in rows], -1.0, 0.0)
    scaled = gaffke([[1e300 * value for value in row] for row in rows], 0.0, 1e300)

    assert (mirrored.low, mirrored.high) == (-interval.high, -interval.low)
    assert (scaled.low / 1e300, scaled.high / 1e300) == pytest.approx((interval.low, interval.high), abs=1e-9)


def test_the_largest_scores_have_a_finite_interval() -> None:
    huge = 1.7e308
    low, high = ends(gaffke([[huge], [-huge], [1.0]], -huge, huge))

    assert -huge < low < -0.5 * huge < 0.5 * huge < high < huge


@pytest.mark.slow
def test_rows_that_are_nearly_alike_are_grouped_if_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    rows = [[random.betavariate(8, 2) for _ in range(random.randint(1, 3))] for _ in range(1500)]
    grouped = gaffke(rows)
    monkeypatch.setattr(intervals, "MAX_GROUPS", 2000)

    assert ends(grouped) == pytest.approx(ends(gaffke(rows)), abs=1e-5)


@pytest.mark.parametrize(
    ("rows", "fault"),
    [([], "no values"), ([[]], "no values"), *(([[0.5], [x]], r"outside 0\.\.1") for x in (-0.1, 1.5, math.nan))],
)
def test_no_values_and_values_outside_the_range_have_no_interval(rows: list[list[float]], fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        gaffke(rows)


@settings(max_examples=30, deadline=None)
@given(st.dictionaries(st.sampled_from([0.0, 0.2, 0.4, 0.8, 1.0]), st.integers(1, 30), min_size=1), st.floats(0, 1))
def test_the_measured_coverage_is_that_of_the_printed_interval(rows: dict[float, int], truth: float) -> None:
    interval = gaffke([[value] for value, n_rows in rows.items() for _ in range(n_rows)])
    if min(abs(truth - interval.low), abs(truth - interval.high)) < 1e-8:
        return

    assert coverage.contains(Counter(rows), truth) == (interval.low <= truth <= interval.high)


@pytest.mark.parametrize("n_rows", [20, 50])
def test_one_run_a_row_contains_any_true_rate_at_least_93_times_in_100(n_rows: int) -> None:
    bounds = [ends(gaffke([[1.0]] * passed + [[0.0]] * (n_rows - passed))) for passed in range(n_rows + 1)]

    for rate in (i / 200 for i in range(2, 199)):
        held = math.fsum(
            math.comb(n_rows, passed) * rate**passed * (1 - rate) ** (n_rows - passed)
            for passed, (low, high) in enumerate(bounds)
            if low <= rate <= high
        )
        assert held >= 0.93


@pytest.mark.parametrize(
    ("n_rows", "kind", "rate"),
    [
        (20, Kind(20, 0.6), 0.95),  # Wilson's interval with the effective number of runs: 84%
        (20, Kind(20, 0.3, "some never pass"), 0.95),  # 82%
        (100, Kind(20, 0.6, "some never pass"), 0.99),  # 49%
    ],
)
def test_few_rows_with_the_rarer_outcome_have_an_honest_interval(n_rows: int, kind: Kind, rate: float) -> None:
    assert coverage.rate_coverage(n_rows, kind, rate, times=250, seed=0) >= 0.92


@pytest.mark.parametrize(
    ("n_rows", "lengths", "kind", "rate"),
    [  # the coverage with a further row of average length
        (10, coverage.LENGTHS[0], Kind(20, 0.9), 0.5),  # 87%
        (20, coverage.LENGTHS[1], Kind(20, 0.9, "some never pass"), 0.8),  # 86%
        (20, coverage.LENGTHS[0], Kind(20, 0.9), 0.8),  # 87%
    ],
)
def test_rows_with_different_numbers_of_runs_have_an_honest_interval(
    n_rows: int, lengths: coverage.Lengths, kind: Kind, rate: float
) -> None:
    assert coverage.unequal_coverage(n_rows, lengths, kind, rate, times=200, seed=0) >= 0.93


@pytest.mark.nightly
@pytest.mark.parametrize("n_rows", coverage.UNEQUAL_ROWS)
@pytest.mark.parametrize("lengths", coverage.LENGTHS, ids=[lengths.name for lengths in coverage.LENGTHS])
def test_different_numbers_of_runs_are_covered_everywhere_without_being_wide(n_rows: int, lengths: Any) -> None:
    cells = itertools.product(coverage.UNEQUAL_KINDS, coverage.UNEQUAL_RATES)

    low = {
        cell: held
        for cell in cells
        if (held := coverage.unequal_coverage(n_rows, lengths, *cell, times=1000, seed=0)) < 0.93
    }
    widths = coverage.unequal_widths(n_rows, lengths, times=20, seed=0)

    assert low == {}
    assert widths.ours <= 1.3 * widths.bootstrap


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
def test_pass_at_k_has_an_honest_interval(estimate: coverage.Estimate) -> None:
    assert coverage.estimate_coverage(20, Kind(5, 0.5), 0.8, estimate, 3, times=150, seed=0) >= 0.90


def test_means_of_scores_and_of_changes_of_which_few_differ_have_an_honest_interval() -> None:
    assert coverage.mean_coverage(20, coverage.SCORES[-1], times=100, seed=0) >= 0.92  # Student's t: 60%
    assert coverage.difference_coverage(20, 20, coverage.CHANGES[-1], times=80, seed=0) >= 0.92  # Student's t: 69%


def beta(passed: int, failed: int, x: Fraction) -> float:
    """The distribution of the order statistic: at least `passed` of n uniform variables lie below x."""
    n, part, whole = passed + failed - 1, x.numerator, x.denominator
    ways = sum(math.comb(n, i) * part**i * (whole - part) ** (n - i) for i in range(passed, n + 1))
    return float(Fraction(ways, whole**n))


@pytest.mark.parametrize(
    ("passed", "failed"), [(1, 1), (1, 2), (3, 2), (20, 1), (1, 20), (8, 3), (50, 50), (95, 6), (500, 2), (2, 900)]
)
def test_single_runs_that_pass_or_fail_have_a_mean_with_the_beta_distribution(passed: int, failed: int) -> None:
    rows = [RowGroup(1, 1, passed), RowGroup(0, 1, failed)]

    for x in [Fraction(1, 10**6), *(Fraction(i, 100) for i in (1, 5, 20, 40, 50, 60, 80, 95, 99))]:
        expected = beta(passed, failed, x)
        assert chance_at_most(float(x), rows) == pytest.approx(expected, rel=1e-9, abs=1e-200)


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6)), min_size=2, max_size=8, unique=True),
    st.integers(0, 1200),
)
def test_rows_that_all_differ_have_a_sum_of_exponentials(rows: list[tuple[int, int]], at: int) -> None:
    value = Fraction(at, 100) + Fraction(1, 997)
    factors = [total - value * n_runs for total, n_runs in rows]
    if len(set(factors)) < len(factors):
        return
    above = sum(
        (math.prod((a / (a - b) for b in factors if b != a), start=Fraction(1)) for a in factors if a > 0), Fraction(0)
    )

    found = chance_at_most(float(value), [RowGroup(*row) for row in rows])

    assert found == pytest.approx(float(1 - above), rel=1e-7, abs=1e-12)


@given(
    st.lists(st.builds(RowGroup, st.floats(-9, 9), st.integers(1, 9), st.integers(1, 300)), min_size=1, max_size=9),
    st.floats(-9, 9),
)
def test_a_mean_that_is_mirrored_has_the_other_tail(rows: list[RowGroup], value: float) -> None:
    mirrored = [row._replace(total=-row.total) for row in rows]
    if all(row.total == value * row.n_runs for row in rows):
        return

    assert chance_at_most(value, rows) + chance_at_most(-value, mirrored) == pytest.approx(1, abs=1e-9)


def test_rows_alike_may_be_grouped_or_not_and_no_rows_have_no_mean() -> None:
    apart = [RowGroup(2, 4), RowGroup(2, 4), RowGroup(3, 4), RowGroup(1, 2)]

    assert chance_at_most(0.55, apart) == pytest.approx(
        chance_at_most(0.55, [RowGroup(2, 4, 2), RowGroup(3, 4), RowGroup(1, 2)]), rel=1e-12
    )

    assert [chance_at_most(value, [RowGroup(1, 2, 3), RowGroup(2, 4)]) for value in (0.2, 0.5, 0.7)] == [0.0, 1.0, 1.0]
    with pytest.raises(ValueError, match="no rows"):
        chance_at_most(0.5, [])
