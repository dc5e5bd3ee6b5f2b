"""Rows as clusters, against published vectors and what must hold for any rows."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import clusters, effective_n, mean_interval, share_interval, student_t, wilson

FOUR = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]
RAGGED = [[1, 1, 0, 1], [0, 0, 1], [1, 1, 1, 1], [0, 0, 0]]

rows_of_runs = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=n, max_size=n), min_size=2, max_size=12)
)
ragged_rows = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5), min_size=1, max_size=12)


def test_rows_of_equal_length_give_the_published_vector() -> None:
    found = clusters(FOUR)

    assert (found.n_rows, found.n_runs, found.mean) == (4, 16, 0.5625)
    assert found.se == pytest.approx(0.2134781410, abs=1e-9)
    assert found.within == pytest.approx(0.1458333333, abs=1e-9)
    assert found.between == pytest.approx(0.1458333333, abs=1e-9)


def test_rows_of_unequal_length_give_the_published_vector() -> None:
    found = clusters(RAGGED)

    assert found.mean == pytest.approx(0.5714285714, abs=1e-9)
    assert found.se == pytest.approx(0.2166215419, abs=1e-9)


@given(rows_of_runs)
def test_the_standard_error_of_equal_rows_is_that_of_their_means(rows: list[list[float]]) -> None:
    means = [statistics.fmean(row) for row in rows]

    assert clusters(rows).se == pytest.approx(statistics.stdev(means) / math.sqrt(len(rows)), abs=1e-12)


@given(rows_of_runs)
def test_the_variances_are_those_of_a_one_way_analysis(rows: list[list[float]]) -> None:
    found, n = clusters(rows), len(rows[0])

    if n == 1:
        assert found.within is found.between is None
        return
    within = statistics.fmean(statistics.variance(row) for row in rows)
    between = statistics.variance([statistics.fmean(row) for row in rows]) - within / n
    assert found.within == pytest.approx(within, abs=1e-12)
    assert found.between == pytest.approx(max(0.0, between), abs=1e-12)


def test_one_row_has_no_standard_error() -> None:
    found = clusters([[1, 0, 1]])

    assert (found.se, found.between) == (None, None)
    assert found.within == pytest.approx(1 / 3)


def test_rows_without_runs_are_left_out() -> None:
    assert clusters([*FOUR, []]) == clusters(FOUR)
    with pytest.raises(ValueError, match="of no values"):
        clusters([[]])


@given(ragged_rows)
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
def test_the_effective_number_of_runs_reflects_how_alike_the_runs_of_a_row_are(
    rows: list[list[float]], n: float
) -> None:
    assert effective_n(clusters(rows)) == pytest.approx(n)


@given(ragged_rows)
def test_the_interval_of_a_share_contains_it_and_is_at_least_as_wide_as_for_independent_runs(
    rows: list[list[float]],
) -> None:
    runs = [value for row in rows for value in row]
    interval = share_interval(clusters(rows))
    narrow = wilson(sum(runs), len(runs))

    assert 0 <= interval.low <= sum(runs) / len(runs) + 1e-12
    assert sum(runs) / len(runs) - 1e-12 <= interval.high <= 1
    assert interval.high - interval.low >= narrow.high - narrow.low - 1e-12


def test_the_interval_of_one_run_a_row_is_wilsons() -> None:
    assert share_interval(clusters([[1]] * 8 + [[0]] * 2)) == wilson(8, 10)


def test_an_interval_by_fewer_than_all_runs_says_so() -> None:
    assert share_interval(clusters(FOUR)).method == "Wilson, effective n"


def test_the_interval_of_scores_is_students_from_the_row_means() -> None:
    rows = [[0.25, 0.5], [1.0, 0.5], [0.0, 0.25]]
    found, expected = mean_interval(clusters(rows)), student_t([0.375, 0.75, 0.125])

    assert found is not None
    assert expected is not None
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert found.method == "Student-t"


def test_the_interval_of_scores_of_0_and_1_is_that_of_a_share() -> None:
    assert mean_interval(clusters(RAGGED)) == share_interval(clusters(RAGGED))


@pytest.mark.parametrize("rows", [[[0.5, 0.25]], [[0.5], [0.5]]])
def test_scores_without_a_spread_between_rows_have_no_interval(rows: list[list[float]]) -> None:
    assert mean_interval(clusters(rows)) is None


def test_a_thousand_runs_a_row_are_summed_without_loss() -> None:
    rows = [[0.1] * 1000, [0.2] * 1000]

    assert clusters(rows).mean == pytest.approx(0.15, rel=1e-15)
    assert clusters(rows).se == pytest.approx(0.05, rel=1e-12)
    assert clusters(rows).within == pytest.approx(0.0, abs=1e-30)
