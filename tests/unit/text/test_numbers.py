"""Numbers, durations and counts in messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.text.numbers import distinguishable, score, seconds


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.00 s"),
        (0.89, "0.89 s"),
        (0.994, "0.99 s"),
        (0.996, "1.0 s"),
        (3.21, "3.2 s"),
        (59.94, "59.9 s"),
        (59.96, "1 min 0 s"),
        (119.6, "2 min 0 s"),
        (3599.4, "59 min 59 s"),
        (3599.6, "1 h 0 min"),
        (7300.0, "2 h 1 min"),
    ],
)
def test_durations(value: float, text: str) -> None:
    assert seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(None, "-"), (0.0, "0.000"), (0.7204, "0.720"), (-2.5, "-2.500"), (1234.5, "1,234.5")]
)
def test_scores(value: float | None, text: str) -> None:
    assert score(value) == text


FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(FINITE, FINITE | st.sampled_from([0.7, 1.0]))
def test_a_value_and_its_bound_look_different_if_they_are(value: float, bound: float) -> None:
    shown_value, shown_bound = map(float, distinguishable(value, bound))

    assert (shown_value >= shown_bound) == (value >= bound)
