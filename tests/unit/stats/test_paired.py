"""Comparisons of the same and of different rows: published vectors, every assignment tried, and their own rules."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pytest_osmosis.stats import (
    ALPHA,
    Paired,
    Unpaired,
    compare,
    compare_unpaired,
    comparison,
    fisher,
    gaffke,
    holm,
    mcnemar,
    mean,
    normal_quantile,
    sign_flip,
)


def every_assignment(differences: list[Fraction]) -> float:
    """The share of sign assignments at least as far from zero, by trying each one in whole numbers."""
    observed = abs(sum(differences, Fraction(0)))
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [sum((sign * d for sign, d in zip(row, differences, strict=True)), Fraction(0)) for row in signs]
    return sum(abs(total) >= observed for total in sums) / len(signs)


def normal_sum(differences: list[Fraction], shift: Fraction = Fraction(0)) -> float:
    """The sum of shifted differences in units of its standard deviation over all assignments of signs."""
    shifted = [d - shift for d in differences]
    return float(sum(shifted)) / math.sqrt(sum(d * d for d in shifted))


@given(st.integers(0, 5), st.integers(0, 5))
def test_mcnemar_counts_every_way_that_rows_can_flip(better: int, worse: int) -> None:
    differences = [Fraction(1)] * better + [Fraction(-1)] * worse

    assert mcnemar(better, worse) == mcnemar(worse, better) == every_assignment(differences)


def test_mcnemar_has_no_largest_number_of_rows() -> None:
    deviations = (5200 - 5000 - 0.5) / 50
    assert mcnemar(5200, 4800) == pytest.approx(math.erfc(deviations / math.sqrt(2)), rel=1e-2)
    assert 0 < mcnemar(0, 1000) < 1e-300


def test_means_of_several_runs_are_compared_by_sign_flips() -> None:
    means = compare([1.0, 0.75, 0.5, 0.25], [0.5, 0.5, 0.75, 0.25])

    assert means.se == pytest.approx(math.sqrt(0.3125 / 12))  # 0.375 is the sum of the squares
    assert (means.n_rows, means.better, means.worse, means.difference) == (4, 2, 1, 0.125)
    assert (means.p, means.test) == (0.75, "sign-flip, exact")  # of 8 assignments 6: all but 0.0 twice
    assert means.interval == gaffke([[0.5], [0.25], [-0.25], [0.0]], -1.0)


@given(st.lists(st.fractions(-1, 1, max_denominator=7), min_size=1, max_size=8))
def test_sign_flips_of_pass_rates_are_counted_exactly(differences: list[Fraction]) -> None:
    p, test = sign_flip([float(d) for d in differences])

    assert p == every_assignment(differences)
    assert test == "sign-flip, exact"


def test_equal_sums_count_though_their_last_digits_differ() -> None:
    thirds = [0.1, 0.2, -0.3]  # 0.1 + 0.2 != 0.3 in floats

    assert sign_flip(thirds) == (1.0, "sign-flip, exact")
    assert sign_flip([math.pi * d for d in thirds])[0] == 1.0
    assert sign_flip([1e-9, 1.0]) == (0.5, "sign-flip, exact"), "no fraction fits both"


def test_many_rows_of_many_runs_are_counted_exactly_and_fast() -> None:
    random = Random(0)
    differences = [(random.randint(0, 5) - random.randint(0, 5)) / 5 for _ in range(1000)]

    p, test = sign_flip(differences)

    spread = math.sqrt(sum(d * d for d in differences))
    assert p == pytest.approx(math.erfc((abs(sum(differences)) - 0.1) / spread / math.sqrt(2)), abs=0.01)
    assert test == "sign-flip, exact"


def test_permutations_too_many_to_count_are_drawn_and_name_the_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(1)
    differences = [(random.randint(0, 5) - random.randint(0, 5)) / 5 for _ in range(40)]
    exact, _ = sign_flip(differences)
    monkeypatch.setattr(comparison, "MAX_EXACT_BITS", 0)
    monkeypatch.setattr(comparison, "SEED", 7)

    drawn, test = sign_flip(differences)

    assert test == "sign-flip, 20,000 draws, seed 7"
    assert 0.01 < exact < 0.99
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    assert drawn == sign_flip(differences)[0]
    monkeypatch.setattr(comparison, "SEED", 8)
    assert drawn != sign_flip(differences)[0]


def test_signs_of_up_to_sixteen_rows_are_all_tried_and_a_drawn_p_is_never_zero() -> None:
    found = {n_rows: sign_flip([math.sqrt(row + 2) for row in range(n_rows)]) for n_rows in (16, 17, 200)}

    assert found[16] == (2 * 2.0**-16, "sign-flip, exact")
    assert (found[17][0] < 1e-4, found[17][1]) == (True, "sign-flip, 20,000 draws, seed 0")
    assert found[200] == (1 / 20_001, "sign-flip, 20,000 draws, seed 0")


@pytest.mark.parametrize("values", [[1, 0, 1], [0.5, 0.25, 1.0], [1.0]])
def test_evals_that_agree_on_every_row_show_no_difference_and_their_interval_has_a_width(values: list[float]) -> None:
    result = compare(values, values)

    assert (result.better, result.worse, result.difference, result.se, result.p) == (0, 0, 0.0, None, 1.0)
    assert result.interval.low == -result.interval.high < -0.1


def shares(runs: int) -> st.SearchStrategy[float]:
    return st.integers(0, runs).map(lambda passed: passed / runs)


def row_pairs(*shares: st.SearchStrategy[float]) -> st.SearchStrategy[list[tuple[float, float]]]:
    """Return rows, new and old, of which many changed in the same direction."""
    either = st.one_of(*(st.tuples(share, share) for share in shares))
    rows = st.lists(st.tuples(either, st.integers(1, 9)), min_size=1, max_size=6)
    return rows.map(lambda kinds: [pair for pair, times in kinds for _ in range(times)])


def agrees(result: Paired | Unpaired) -> bool:
    return (result.p < ALPHA) == (not result.interval.low <= 0 <= result.interval.high)


@settings(deadline=None)
@given(row_pairs(shares(1)) | row_pairs(shares(2)) | row_pairs(shares(2), shares(3), shares(20)))
@example([(1.0, 0.0)] * 6)
@example([(1.0, 0.0)] * 5)
@example([(0.55, 0.5)] * 6 + [(0.5, 0.5)] * 40)
@example([(0.5, 0.55)] * 20)
@example([(1.0, 0.0)])
def test_p_is_below_5_percent_exactly_if_0_lies_outside_the_interval(pairs: list[tuple[float, float]]) -> None:
    new, old = zip(*pairs, strict=True)
    result = compare(new, old)

    assert agrees(result)
    assert -1 <= result.interval.low <= result.difference <= result.interval.high <= 1


@pytest.mark.parametrize("limit", [0, comparison.MAX_EXACT_BITS])
@pytest.mark.parametrize("n_better", range(45, 95, 5))
def test_they_agree_if_permutations_are_drawn(monkeypatch: pytest.MonkeyPatch, limit: int, n_better: int) -> None:
    monkeypatch.setattr(comparison, "MAX_EXACT_BITS", limit)
    changes = [0.05] * n_better + [-0.05] * 50 + [0.1] * 10 + [-0.1] * 8

    assert agrees(compare([0.5 + change for change in changes], [0.5] * len(changes)))


def test_an_interval_reaches_0_or_ends_where_the_test_stops_to_reject() -> None:
    result = compare([1.0] * 5 + [0.0] * 50, [0.0] * 55)

    assert (result.p, result.interval.low) == (0.0625, 0.0)
    assert result.interval.method == "Gaffke, mid-p, extended to 0"
    assert result.interval.high > gaffke([[1.0]] * 5 + [[0.0]] * 50).high - 1e-9

    differences = [Fraction(i, 20) for i in (3, 4, 1, 2, 5, 3, 2, 1, 4, 6, -1, 2)]
    narrowed = compare([0.5 + float(d) for d in differences], [0.5] * 12)

    assert narrowed.p == every_assignment(differences) < ALPHA
    assert gaffke([[float(d)] for d in differences], -1.0).low < 0 < narrowed.interval.low
    assert narrowed.interval.method == "Gaffke, mid-p, and sign-flip"
    shift = Fraction(narrowed.interval.low)
    assert normal_sum(differences, shift) / normal_sum(differences) == pytest.approx(
        normal_quantile(ALPHA / 2) / normal_quantile(narrowed.p / 2)
    )
    assert every_assignment([d - shift * Fraction(7, 10) for d in differences]) < ALPHA
    assert every_assignment([d - shift * Fraction(13, 10) for d in differences]) >= ALPHA


def test_a_large_change_among_thousands_of_small_ones_is_drawn_with_its_sign() -> None:
    random = Random(5)
    small = [random.choice((-1, 1)) * random.uniform(0.9e-3, 1.1e-3) for _ in range(3000)]
    spread = math.hypot(*small)
    large = 2 * spread
    observed = abs(large + sum(small))

    p, _ = sign_flip([large, *small])

    tails = [math.erfc((observed - sign * large) / spread / math.sqrt(2)) / 2 for sign in (1, -1)]
    assert p == pytest.approx(sum(tails), abs=0.015)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_swapping_new_and_old_reverses_the_sign(pairs: list[tuple[float, float]]) -> None:
    new, old = zip(*pairs, strict=True)
    forth, back = compare(new, old), compare(old, new)

    assert (forth.better, forth.worse) == (back.worse, back.better)
    assert forth.difference == -back.difference
    assert forth.p == back.p
    assert (forth.interval.low, forth.interval.high) == (-back.interval.high, -back.interval.low)


def test_lists_of_different_lengths_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 rows cannot be paired with 1"):
        compare([1.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="no values"):
        compare([], [])
    with pytest.raises(ValueError, match="not counts"):
        mcnemar(-1, 2)
    with pytest.raises(ValueError, match=r"undefined for values outside 0\.\.1"):
        compare([0.5], [1.5])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_adjusts_upwards_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)

    assert all(p <= after <= 1 for p, after in zip(ps, adjusted, strict=True))
    by_p = [after for _, after in sorted(zip(ps, adjusted, strict=True))]
    assert by_p == sorted(by_p)
    if ps:
        assert min(adjusted) == min(1.0, len(ps) * min(ps))


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

    assert agrees(found)
    assert -1 <= found.interval.low <= found.difference <= found.interval.high <= 1
    assert mirrored.p == pytest.approx(found.p, abs=1e-6)
    assert mirrored.interval.low == pytest.approx(-found.interval.high, abs=1e-9)
    assert 0 < found.p <= 1


def test_every_small_table_of_passes_agrees_with_its_interval() -> None:
    sides = [outcomes(passed, n) for n in (2, 4) for passed in range(n + 1)]
    for found in itertools.starmap(compare_unpaired, itertools.product(sides, repeat=2)):
        assert agrees(found), found


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
