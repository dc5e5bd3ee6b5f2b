"""Rows as clusters, against published vectors and what must hold for any rows."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import clusters, effective_n

FOUR = [[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]]
RAGGED = [[1, 1, 0, 1], [0, 0, 1], [1, 1, 1, 1], [0, 0, 0]]

rows_of_runs = st.integers(1, 6).flatmap(
    lambda n: st.lists(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=n, max_size=n), min_size=2, max_size=12)
)
ragged_rows = st.lists(st.lists(st.sampled_from([0.0, 1.0]), min_size=1, max_size=5), min_size=1, max_size=12)


def test_rows_of_equal_and_unequal_length_give_the_published_vectors() -> None:
    equal, ragged = clusters(FOUR), clusters(RAGGED)

    assert (equal.n_rows, equal.n_runs, equal.mean) == (4, 16, 0.5625)
    assert (equal.se, equal.within, equal.between) == pytest.approx(
        (0.2134781410, 0.1458333333, 0.1458333333), abs=1e-9
    )
    assert (ragged.mean, ragged.se) == pytest.approx((0.5714285714, 0.2166215419), abs=1e-9)


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
