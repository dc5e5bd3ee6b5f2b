"""Power."""

from __future__ import annotations

import pytest

from pytest_osmosis.stats import chance_below


@pytest.mark.parametrize(
    ("margin", "se", "expected"), [(0.0, 0.1, 0.5), (0.1, 0.0, 1.0), (-0.1, 0.0, 0.0), (0.0, 0.0, 0.5)]
)
def test_the_chance_to_fall_below_a_bound_at_its_edges(margin: float, se: float, expected: float) -> None:
    assert chance_below(margin, se) == expected
