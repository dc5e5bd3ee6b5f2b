"""The distribution of a mean with random weights, against closed forms."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats.intervals import RowGroup, chance_at_most

PROBABILITIES = [Fraction(1, 10**6), *(Fraction(i, 100) for i in (1, 5, 20, 40, 50, 60, 80, 95, 99))]


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

    for x in PROBABILITIES:
        expected = beta(passed, failed, x)
        assert chance_at_most(float(x), rows) == pytest.approx(expected, rel=1e-9, abs=1e-200)


different = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 6)), min_size=2, max_size=8, unique=True)


@given(different, st.integers(0, 1200))
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

    with pytest.raises(ValueError, match="no rows"):
        chance_at_most(0.5, [])


@pytest.mark.parametrize(("value", "expected"), [(0.2, 0.0), (0.5, 1.0), (0.7, 1.0)])
def test_rows_with_the_same_mean_leave_nothing_to_chance(value: float, expected: float) -> None:
    assert chance_at_most(value, [RowGroup(1, 2, 3), RowGroup(2, 4)]) == expected
