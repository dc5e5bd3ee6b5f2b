"""Power and sample sizes against published vectors."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import chance_below, rows_for, smallest_effect


@pytest.mark.parametrize(("n", "expected"), [(1, 3875.990), (10, 1259.697), (10**9, 968.997)])
def test_the_number_of_rows_is_the_published_one(n: int, expected: float) -> None:
    assert rows_for(0.03, 1 / 9, (1 / 6, 1 / 6), (n, n)) == pytest.approx(expected, abs=1e-3)


def test_the_smallest_effect_is_the_published_one() -> None:
    assert smallest_effect(198, 1 / 9, (1 / 6, 1 / 6)) == pytest.approx(0.1327333279, abs=1e-9)


@given(st.floats(0.001, 1), st.floats(0.001, 1), st.floats(0, 1), st.integers(1, 100))
def test_so_many_rows_show_just_that_effect(effect: float, between: float, within: float, n: int) -> None:
    rows = rows_for(effect, between, (within, within), (n, n))

    assert smallest_effect(rows, between, (within, within), (n, n)) == pytest.approx(effect)


@pytest.mark.parametrize(
    ("margin", "se", "expected"), [(0.0, 0.1, 0.5), (0.1, 0.0, 1.0), (-0.1, 0.0, 0.0), (0.0, 0.0, 0.5)]
)
def test_the_chance_to_fall_below_a_bound_at_its_edges(margin: float, se: float, expected: float) -> None:
    assert chance_below(margin, se) == expected


def test_what_is_undefined_is_refused() -> None:
    with pytest.raises(ValueError, match="effect of 0"):
        rows_for(0.0, 1.0)
    with pytest.raises(ValueError, match="without rows"):
        smallest_effect(0, 1.0)
