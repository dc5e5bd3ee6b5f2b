"""Quantiles and tails against printed tables and closed forms."""

from __future__ import annotations

import math
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats.distributions import normal_quantile, student_t_quantile, student_t_tail


@pytest.mark.parametrize(
    ("df", "expected"),
    [
        (1, [3.078, 6.314, 12.706, 31.821, 63.657]),
        (2, [1.886, 2.920, 4.303, 6.965, 9.925]),
        (5, [1.476, 2.015, 2.571, 3.365, 4.032]),
        (10, [1.372, 1.812, 2.228, 2.764, 3.169]),
        (20, [1.325, 1.725, 2.086, 2.528, 2.845]),
        (30, [1.310, 1.697, 2.042, 2.457, 2.750]),
        (60, [1.296, 1.671, 2.000, 2.390, 2.660]),
        (120, [1.289, 1.658, 1.980, 2.358, 2.617]),
    ],
)
def test_student_t_quantiles_are_those_of_the_printed_tables(df: int, expected: list[float]) -> None:
    quantiles = [student_t_quantile(p, df) for p in (0.9, 0.95, 0.975, 0.99, 0.995)]

    assert [round(quantile, 3) for quantile in quantiles] == expected


@pytest.mark.parametrize("p", [0.6, 0.9, 0.975, 0.999, 0.9999])
def test_student_t_quantiles_have_a_closed_form_for_one_and_two_degrees_of_freedom(p: float) -> None:
    assert student_t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9)
    assert student_t_quantile(p, 2) == pytest.approx((2 * p - 1) / math.sqrt(2 * p * (1 - p)), rel=1e-9)


@pytest.mark.parametrize("df", [100_000, 5_000_000])
def test_student_t_is_normal_for_many_degrees_of_freedom(df: int) -> None:
    z = normal_quantile(0.975)

    assert student_t_quantile(0.975, df) == pytest.approx(z + (z**3 + z) / (4 * df), rel=1e-8)


@given(st.floats(0.001, 0.999), st.integers(1, 500))
def test_the_tail_beyond_a_quantile_is_what_is_left(p: float, df: int) -> None:
    t = student_t_quantile(p, df)

    assert t == pytest.approx(-student_t_quantile(1 - p, df), abs=1e-9)
    assert student_t_tail(abs(t), df) == pytest.approx(min(p, 1 - p), rel=1e-9)


@given(st.floats(0.0001, 0.9999))
def test_the_normal_quantile_inverts_the_distribution(p: float) -> None:
    assert NormalDist().cdf(normal_quantile(p)) == pytest.approx(p, rel=1e-9)


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_quantiles_outside_of_a_probability_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        normal_quantile(p)
    with pytest.raises(ValueError, match="quantile"):
        student_t_quantile(p, 5)


@pytest.mark.parametrize(("t", "df"), [(1.0, 0), (-1.0, 3)])
def test_a_tail_without_degrees_of_freedom_is_refused(t: float, df: int) -> None:
    with pytest.raises(ValueError, match="tail"):
        student_t_tail(t, df)
