"""Intervals against published vectors and their defining equations."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import student_t, wilson
from pytest_osmosis.stats.distributions import normal_quantile


@pytest.mark.parametrize(
    ("passed", "n", "low", "high"),
    [
        (0, 10, 0.0, 0.277533),
        (10, 10, 0.722467, 1.0),
        (8, 10, 0.490162, 0.943318),
        (72, 100, 0.625120, 0.798603),
        (80, 100, 0.711171, 0.866633),
        (1, 30, 0.005909, 0.166704),
        (950, 1000, 0.934686, 0.961870),
    ],
)
def test_wilson_gives_the_published_vectors(passed: int, n: int, low: float, high: float) -> None:
    interval = wilson(passed, n)

    assert (round(interval.low, 6), round(interval.high, 6)) == (low, high)
    assert (interval.method, interval.level) == ("Wilson", 0.95)


@pytest.mark.parametrize(("passed", "n", "low"), [(46, 50, 0.833302), (48, 50, 0.886100), (90, 100, 0.839644)])
def test_wilson_at_90_percent_gives_the_published_one_sided_bounds(passed: int, n: int, low: float) -> None:
    assert round(wilson(passed, n, level=0.9).low, 6) == low


@given(st.integers(1, 5000), st.data())
def test_wilson_bounds_are_where_the_score_test_rejects(n: int, data: st.DataObject) -> None:
    passed = data.draw(st.integers(1, n - 1)) if n > 1 else 0
    interval = wilson(passed, n)

    assert 0 <= interval.low <= passed / n <= interval.high <= 1
    for bound in {interval.low, interval.high} - {0.0, 1.0}:
        deviations = (passed / n - bound) / math.sqrt(bound * (1 - bound) / n)
        assert abs(deviations) == pytest.approx(normal_quantile(0.975), rel=1e-6)


@pytest.mark.parametrize("n", [50, 75, 100, 150, 300])
@pytest.mark.parametrize("rate", [0.1, 0.2, 0.3, 0.5, 0.7, 0.9])
def test_wilson_contains_the_true_rate_93_to_97_times_in_100(n: int, rate: float) -> None:
    held = math.fsum(
        math.comb(n, passed) * rate**passed * (1 - rate) ** (n - passed)
        for passed in range(n + 1)
        if (interval := wilson(passed, n)).low <= rate <= interval.high
    )

    assert 93 <= round(100 * held) <= 97


@pytest.mark.parametrize(("passed", "n"), [(0, 0), (-1, 5), (6, 5)])
def test_wilson_rejects_counts_that_are_not_a_proportion(passed: int, n: int) -> None:
    with pytest.raises(ValueError, match="undefined"):
        wilson(passed, n)


def test_student_t_gives_the_published_vector() -> None:
    interval = student_t([1, 0, 1, 1, 0.5, 0, 1, 1, 0, 1])

    assert interval is not None
    assert interval.low == pytest.approx(0.3106764256, abs=1e-9)
    assert interval.high == pytest.approx(0.9893235744, abs=1e-9)


@pytest.mark.parametrize("values", [[0.5], [1.0, 1.0, 1.0]])
def test_student_t_is_undefined_if_all_values_are_equal(values: list[float]) -> None:
    assert student_t(values) is None
