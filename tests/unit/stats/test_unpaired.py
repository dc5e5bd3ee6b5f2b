"""Comparisons of different rows: against published vectors, by counting every table, and by their own rules."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.stats import ALPHA, compare_unpaired, fisher, gaffke, mean


def outcomes(passed: int, n: int) -> list[float]:
    return [1.0] * passed + [0.0] * (n - passed)


@given(st.data(), st.integers(1, 5), st.integers(1, 5))
def test_fishers_test_counts_every_way_to_deal_the_passes(data: st.DataObject, n_new: int, n_old: int) -> None:
    here, there = data.draw(st.integers(0, n_new)), data.draw(st.integers(0, n_old))
    deals = [
        sum(index < n_new for index in chosen) for chosen in itertools.combinations(range(n_new + n_old), here + there)
    ]
    likely = deals.count(here)

    assert fisher(here, n_new, there, n_old) == pytest.approx(
        sum(deals.count(deal) <= likely for deal in deals) / len(deals)
    )


SHARES = st.lists(st.integers(0, 4).map(lambda n: n / 4), min_size=1, max_size=6)


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(SHARES, SHARES)
def test_p_and_interval_agree_and_change_sides_with_the_evals(new: list[float], old: list[float]) -> None:
    found, mirrored = compare_unpaired(new, old), compare_unpaired(old, new)

    assert (found.p < ALPHA) == (not found.interval.low <= 0 <= found.interval.high)
    assert -1 <= found.interval.low <= found.difference <= found.interval.high <= 1
    assert mirrored.p == pytest.approx(found.p, abs=1e-6)
    assert mirrored.interval.low == pytest.approx(-found.interval.high, abs=1e-9)
    assert 0 < found.p <= 1


def test_every_small_table_of_passes_agrees_with_its_interval() -> None:
    for n_new, n_old in itertools.product((2, 4), repeat=2):
        for here, there in itertools.product(range(n_new + 1), range(n_old + 1)):
            found = compare_unpaired(outcomes(here, n_new), outcomes(there, n_old))
            assert (found.p < ALPHA) == (not found.interval.low <= 0 <= found.interval.high), found


def test_the_interval_joins_those_of_both_means_and_ends_where_the_test_says() -> None:
    new, old = [1.0, 0.75, 1.0, 0.5, 0.75, 1.0], [0.25, 0.5, 0.0, 0.5, 0.25]
    mine, theirs = gaffke([[value] for value in new]), gaffke([[value] for value in old])

    found = compare_unpaired(new, old)

    below, above = mean(new) - mine.low, theirs.high - mean(old)
    assert found.interval.low == pytest.approx(found.difference - math.hypot(below, above))
    assert (found.n_new, found.n_old, found.test) == (6, 5, "MOVER, inverted")
    assert found.p < ALPHA

    corrected, mirrored = (
        compare_unpaired(*sides) for sides in itertools.permutations([outcomes(2, 3), outcomes(6, 55)])
    )
    assert corrected.p == mirrored.p == pytest.approx(0.04718693)
    # of p = 0.04718693 the normal quantile is 1.984618, and (1 - 1.959964 / 1.984618) (2 / 3 - 6 / 55) = 0.006927
    assert corrected.interval.low == -mirrored.interval.high == pytest.approx(0.006927, abs=2e-6)
    assert corrected.interval.method == mirrored.interval.method == "MOVER, Gaffke, test-based"


def test_a_difference_far_below_the_spread_shows_nothing() -> None:
    assert compare_unpaired([0.0, 1.0, 0.5], [0.0, 0.99, 0.5]).p == 1.0


def test_thousands_of_rows_are_compared_and_no_table_has_more_passes_than_rows() -> None:
    assert compare_unpaired(outcomes(7000, 10_000), outcomes(7100, 10_000)).p == pytest.approx(0.125, abs=0.002)
    assert compare_unpaired(outcomes(7000, 10_001), outcomes(7100, 10_001)).p == pytest.approx(0.12, abs=0.01)
    assert compare_unpaired([0.5] * 1000, [0.0] * 1000).p < 1e-14
    assert compare_unpaired([0.5, 0.25], [0.375]).p == 1.0

    with pytest.raises(ValueError, match="3 of 2 and 0 of 1 are not counts of rows"):
        fisher(3, 2, 0, 1)
