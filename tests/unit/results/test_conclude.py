"""Holm's correction of the comparisons of one session."""

from __future__ import annotations

import pytest

from pytest_osmosis.results.conclude import corrected
from pytest_osmosis.verdicts.comparison import BaselineComparison, Matched, Pair, against_baseline


def comparison(n_worse: int) -> BaselineComparison:
    """Return a comparison of 20 rows, of which some passed only in the baseline."""
    pairs = [Pair(row, row, [row >= n_worse], [True]) for row in range(20)]
    return against_baseline("base.json", Matched(pairs))


def test_each_p_is_multiplied_by_the_number_of_comparisons_that_are_not_yet_rejected() -> None:
    found = comparison(6)

    assert corrected([None, found]) == [None, found]

    small, large, unmeasured = comparison(8), comparison(6), against_baseline("base.json", Matched([]))

    one, nothing, other, empty = corrected([large, None, small, unmeasured])

    assert one is not None
    assert other is not None
    assert small.found.p_value is not None
    assert other.found.p_adjusted == pytest.approx(2 * small.found.p_value)
    assert one.found.p_adjusted == pytest.approx(large.found.p_value)
    assert (other.found.evals_compared, one.found.evals_compared) == (2, 2)
    assert (nothing, empty) == (None, unmeasured)
