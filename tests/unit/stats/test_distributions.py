"""Quantiles against what they invert, and the chance to fall below a bound."""

from __future__ import annotations

import math

import pytest

from pytest_osmosis.stats import chance_below, normal_quantile


@pytest.mark.parametrize("p", [0.0, 1.0, -0.1, math.nan])
def test_quantiles_outside_of_a_probability_are_refused(p: float) -> None:
    with pytest.raises(ValueError, match="quantile"):
        normal_quantile(p)


@pytest.mark.parametrize(
    ("margin", "se", "expected"), [(0.0, 0.1, 0.5), (0.1, 0.0, 1.0), (-0.1, 0.0, 0.0), (0.0, 0.0, 0.5)]
)
def test_the_chance_to_fall_below_a_bound_at_its_edges(margin: float, se: float, expected: float) -> None:
    assert chance_below(margin, se) == expected
