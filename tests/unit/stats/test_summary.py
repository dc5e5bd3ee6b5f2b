"""Statistics of rows and runs against published vectors, brute force over every subset, and properties."""

from __future__ import annotations

import itertools
import json
import math
import re
import statistics
import sys
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

from pytest_osmosis.stats import (
    RunScore,
    Summary,
    chance_below,
    clusters,
    effective_n,
    gaffke,
    ks_for,
    mean,
    normal_quantile,
    pass_at_k,
    pass_hat_k,
    percentile,
    std,
    summarize,
)

PASS = RunScore(1.0, True)
FAIL = RunScore(0.0, False)
UNMEASURED = RunScore(0.0, False, measured=False)
OUTSIDE = [(5, 5, 6), (5, 2, 0), (0, 0, 1)]

scores = st.lists(st.floats(min_value=-1e6, max_value=1e6), min_size=1, max_size=50)


@pytest.mark.parametrize(("n", "c", "k", "expected"), [(200, 13, 10, 0.4975511147), (200, 13, 100, 0.9999194972)])
def test_pass_at_k_gives_the_published_vectors(n: int, c: int, k: int, expected: float) -> None:
    assert pass_at_k(n, c, k) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("n", "c", "k"), [(n, c, k) for n in range(1, 8) for c in range(n + 1) for k in range(1, n + 1)]
)
def test_pass_at_k_and_pass_hat_k_are_shares_of_all_subsets(n: int, c: int, k: int) -> None:
    subsets = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert pass_at_k(n, c, k) == sum(map(any, subsets)) / len(subsets)
    assert pass_hat_k(n, c, k) == sum(map(all, subsets)) / len(subsets)


@pytest.mark.parametrize("estimate", [pass_at_k, pass_hat_k])
@pytest.mark.parametrize(
    ("n", "c", "k", "fault"),
    [
        *((n, c, k, f"is undefined for k = {k} with n = {n} runs; k must lie in 1..n") for n, c, k in OUTSIDE),
        *((5, c, 2, f"c = {c} of n = 5 runs cannot have passed") for c in (-1, 6)),
    ],
)
def test_k_outside_the_runs_and_more_passes_than_runs_fail(estimate: Any, n: int, c: int, k: int, fault: str) -> None:
    with pytest.raises(ValueError, match=re.escape(fault)):
        estimate(n, c, k)


def test_reported_ks_are_powers_of_two_3_5_10_and_n() -> None:
    expected = {2: (1, 2), 3: (1, 2, 3), 7: (1, 2, 3, 4, 5, 7), 100: (1, 2, 3, 4, 5, 8, 10, 16, 32, 64, 100)}

    assert {n: ks_for(n) for n in expected} == expected


@given(scores)
def test_mean_std_and_median_agree_with_the_standard_library(values: list[float]) -> None:
    assert mean(values) == pytest.approx(statistics.mean(values), rel=1e-12, abs=1e-300)
    assert std(values) == pytest.approx(statistics.pstdev(values), rel=1e-6, abs=1e-9)
    assert percentile(values, 50) == pytest.approx(statistics.median(values), rel=1e-12, abs=1e-300)


def test_mean_is_summed_without_loss_and_finite_for_the_largest_scores() -> None:
    assert mean([1e16, 1.0, -1e16, 1.0]) == 0.5

    values = [sys.float_info.max, sys.float_info.max / 2]
    assert mean(values) == percentile(values, 50) == sys.float_info.max * 0.75
    assert std(values) == pytest.approx(sys.float_info.max / 4)


@pytest.mark.parametrize(("p", "expected"), [(0, 1.0), (10, 1.3), (25, 1.75), (50, 2.5), (90, 3.7), (100, 4.0)])
def test_percentiles_are_those_of_numpy(p: float, expected: float) -> None:
    assert percentile([4.0, 2.0, 1.0, 3.0], p) == pytest.approx(expected)


@pytest.mark.parametrize("function", [mean, std, lambda values: percentile(values, 5)])
def test_no_values_have_no_mean_std_or_percentile(function: Callable[[list[float]], float]) -> None:
    with pytest.raises(ValueError, match="of no values is undefined"):
        function([])
    for p in (-1, 101):
        with pytest.raises(ValueError, match="percentile is defined for"):
            percentile([1.0], p)


def test_summary_of_rows_gives_the_published_vectors() -> None:
    rows = {index: [PASS] * c + [FAIL] * (4 - c) for index, c in enumerate([4, 2, 0, 3])}
    summary = summarize(rows, n=4)
    assert summary.pass_at == pytest.approx({1: 0.5625, 2: 0.7083333333, 3: 0.75, 4: 0.75}, abs=1e-9)
    assert summary.pass_hat == pytest.approx({2: 0.4166666667, 3: 0.3125, 4: 0.25}, abs=1e-9)


def test_summary_describes_all_runs() -> None:
    rows = {0: [RunScore(1.0, True), RunScore(0.25, False)], 7: [RunScore(1.0, True), RunScore(0.25, False)]}
    found = summarize(rows, n=2)
    assert found == Summary(
        n_rows=2,
        n_runs=4,
        n_measured=4,
        mean=0.625,
        std=0.375,
        min=0.25,
        max=1.0,
        median=0.625,
        pass_rate=0.5,
        pass_at={1: 0.5, 2: 1.0},
        pass_hat={2: 0.0},
        percentiles={5: 0.25, 25: 0.25, 75: 1.0, 95: 1.0},
        se=0.0,
        within=0.28125,
        between=0.0,
        mean_interval=gaffke([[0.625]] * 2),
        pass_rate_interval=gaffke([[0.5]] * 2),
        n_mixed=2,
    )


def test_unmeasured_runs_count_as_zero_and_scores_beyond_0_and_1_widen_the_range() -> None:
    summary = summarize({0: [PASS, UNMEASURED], 1: [PASS, PASS]}, n=2)
    assert (summary.mean, summary.min, summary.pass_rate) == (0.75, 0.0, 0.75)
    assert (summary.n_runs, summary.n_measured) == (4, 3)

    beyond = [[4.0], [-1.0], [0.5]]
    found = summarize({row: [RunScore(score, False)] for row, (score,) in enumerate(beyond)}, n=1)

    assert found.mean_interval == gaffke(beyond, -1.0, 4.0)
    assert found.pass_rate_interval == gaffke([[0.0]] * 3)


@pytest.mark.parametrize(
    "rows", [{0: [PASS, UNMEASURED], 1: [FAIL, FAIL]}, {0: [PASS, FAIL, UNMEASURED], 1: [UNMEASURED] * 3}]
)
def test_pass_at_k_leaves_out_rows_with_fewer_than_k_measured_runs(rows: dict[int, list[RunScore]]) -> None:
    summary = summarize(rows, n=max(map(len, rows.values())))
    assert summary.pass_hat == {2: 0.0}
    assert summary.pass_at == {1: 0.5, 2: 0.0 if rows[1][0] is FAIL else 1.0}


@pytest.mark.parametrize("rows", [{}, {0: [], 1: []}])
def test_no_runs_summarize_to_none(rows: dict[int, list[RunScore]]) -> None:
    summary = summarize(rows, n=3)
    assert summary == Summary(n_rows=0, n_runs=0, n_measured=0)
    assert summarize({**rows, 2: [PASS]}, n=1).n_rows == 1


@pytest.mark.parametrize("huge", [1e160, -1e160, 1e308, sys.float_info.max])
@pytest.mark.parametrize("others", [[0.5], [0.5, -1e150], [0.0, 0.25, 1.0]])
def test_scores_whose_squares_no_float_holds_have_a_summary(huge: float, others: list[float]) -> None:
    rows = {0: [huge, *others], 1: others, 2: [-huge]}
    summary = summarize({row: [RunScore(score, score >= 1) for score in scores] for row, scores in rows.items()}, n=3)

    assert summary.within is None
    assert (summary.min, summary.max) == (-abs(huge), abs(huge))
    for value in (summary.mean, summary.std, summary.se, *summary.percentiles.values()):
        assert value is not None
        assert math.isfinite(value)
    json.dumps(to_builtins(summary), allow_nan=False)


def test_huge_scores_have_the_statistics_of_small_ones_in_another_unit() -> None:
    rows = {0: [3.0, 1.0], 1: [0.0], 2: [2.0, 2.0, 0.5]}
    unit = 2.0**600
    small, huge = (
        summarize({row: [RunScore(score * by, False) for score in scores] for row, scores in rows.items()}, n=3)
        for by in (1.0, unit)
    )

    assert small.mean is not None
    assert small.std is not None
    assert small.se is not None
    assert (huge.mean, huge.std, huge.se) == (small.mean * unit, small.std * unit, small.se * unit)
    assert (huge.within, huge.between) == (None, None)


FOUR = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]


def test_rows_of_unequal_length_give_the_published_vectors() -> None:
    found = clusters([[1, 1, 0, 1], [0, 0, 1], [1, 1, 1, 1], [0, 0, 0]])

    assert (found.n_rows, found.n_runs) == (4, 14)
    assert (found.mean, found.se) == pytest.approx((0.5714285714, 0.2166215419), abs=1e-9)


@given(
    st.integers(1, 6).flatmap(
        lambda n: st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=n, max_size=n), min_size=2, max_size=12)
    )
)
def test_errors_and_variances_of_equal_rows_are_those_of_a_one_way_analysis(rows: list[list[float]]) -> None:
    found, n = clusters(rows), len(rows[0])
    means = [statistics.fmean(row) for row in rows]

    assert found.se == pytest.approx(statistics.stdev(means) / math.sqrt(len(rows)), abs=1e-12)
    if n == 1:
        assert found.within is found.between is None
        return
    within = statistics.fmean(statistics.variance(row) for row in rows)
    assert found.within == pytest.approx(within, abs=1e-12)
    assert found.between == pytest.approx(max(0.0, statistics.variance(means) - within / n), abs=1e-12)


def test_one_row_has_no_standard_error_and_a_thousand_runs_are_summed_without_loss() -> None:
    found = clusters([[1, 0, 1]])

    assert (found.se, found.between) == (None, None)
    assert found.within == pytest.approx(1 / 3)
    assert clusters([*FOUR, []]) == clusters(FOUR)
    with pytest.raises(ValueError, match="of no values"):
        clusters([[]])

    rows = [[0.1] * 1000, [0.2] * 1000]

    assert clusters(rows).mean == pytest.approx(0.15, rel=1e-15)
    assert clusters(rows).se == pytest.approx(0.05, rel=1e-12)
    assert clusters(rows).within == pytest.approx(0.0, abs=1e-30)


@given(st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5), min_size=1, max_size=12))
def test_the_effective_number_of_runs_lies_between_rows_and_runs(rows: list[list[float]]) -> None:
    found = clusters(rows)

    assert found.n_rows <= effective_n(found) <= found.n_runs


@pytest.mark.parametrize(
    ("rows", "n"),
    [
        ([[1], [0], [1]], 3),  # one run a row: the runs
        ([[1, 1], [0, 0], [1, 1]], 3),  # runs of a row that say the same: the rows
        ([[1, 0], [0, 1], [1, 0]], 6),  # rows that do not differ: the runs
        ([[1, 1], [1, 1]], 2),  # nothing to measure it by: the rows
        ([[1, 0, 1]], 1),
        (FOUR, 0.5625 * 0.4375 / 0.2134781410**2),
    ],
)
def test_the_effective_number_of_runs_reflects_how_alike_the_runs_of_a_row_are(rows: Any, n: float) -> None:
    assert effective_n(clusters(rows)) == pytest.approx(n)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_quantiles_outside_of_a_probability_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        normal_quantile(p)


@pytest.mark.parametrize(
    ("margin", "se", "expected"), [(0.0, 0.1, 0.5), (0.1, 0.0, 1.0), (-0.1, 0.0, 0.0), (0.0, 0.0, 0.5)]
)
def test_the_chance_to_fall_below_a_bound_at_its_edges(margin: float, se: float, expected: float) -> None:
    assert chance_below(margin, se) == expected
