"""Paired comparisons against published vectors and by trying every sign assignment."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.stats import bonett_price, compare, holm, mcnemar, paired, sign_flip

NEW = [1, 1, 0, 1, 0, 1, 1, 0, 1, 1]
OLD = [1, 0, 0, 1, 0, 0, 1, 1, 0, 1]


def every_assignment(differences: list[Fraction]) -> float:
    """The share of sign assignments at least as far from zero, by trying each one in whole numbers."""
    observed = abs(sum(differences, Fraction(0)))
    signs = list(itertools.product((1, -1), repeat=len(differences)))
    sums = [sum((sign * d for sign, d in zip(row, differences, strict=True)), Fraction(0)) for row in signs]
    return sum(abs(total) >= observed for total in sums) / len(signs)


@pytest.mark.parametrize(
    ("better", "worse", "expected"),
    [
        (3, 1, 0.625),
        (15, 5, 0.0413894653),
        (1, 9, 0.0214843750),
        (0, 6, 0.03125),
        (0, 5, 0.0625),
        (0, 0, 1.0),
        (4, 4, 1.0),
    ],
)
def test_mcnemar_gives_the_published_vectors(better: int, worse: int, expected: float) -> None:
    assert mcnemar(better, worse) == pytest.approx(expected, abs=1e-9)


@given(st.integers(0, 5), st.integers(0, 5))
def test_mcnemar_counts_every_way_that_rows_can_flip(better: int, worse: int) -> None:
    differences = [Fraction(1)] * better + [Fraction(-1)] * worse

    assert mcnemar(better, worse) == mcnemar(worse, better) == every_assignment(differences)


def test_mcnemar_has_no_largest_number_of_rows() -> None:
    deviations = (5200 - 5000 - 0.5) / 50
    assert mcnemar(5200, 4800) == pytest.approx(math.erfc(deviations / math.sqrt(2)), rel=1e-2)
    assert 0 < mcnemar(0, 1000) < 1e-300


def test_outcomes_of_one_run_a_row_are_compared_by_mcnemar() -> None:
    result = compare(NEW, OLD)

    assert (result.n_rows, result.better, result.worse) == (10, 3, 1)
    assert result.difference == pytest.approx(0.2)
    assert result.se == pytest.approx(0.2)
    assert (result.p, result.test) == (0.625, "McNemar, exact")
    assert result.interval == bonett_price(3, 1, 10)


def test_means_of_several_runs_are_compared_by_sign_flips() -> None:
    result = compare([1.0, 0.75, 0.5, 0.25], [0.5, 0.5, 0.75, 0.25])

    assert (result.n_rows, result.better, result.worse, result.difference) == (4, 2, 1, 0.125)
    assert (result.p, result.test) == (0.75, "sign-flip, exact")  # of 8 assignments 6: all but 0.0 twice
    assert result.interval is not None
    assert result.interval.method == "Student-t"
    assert result.interval.low == pytest.approx(0.125 - 3.182446305 * 0.1613743061, abs=1e-8)


def test_the_sign_flip_of_outcomes_is_mcnemar() -> None:
    assert sign_flip([a - b for a, b in zip(NEW, OLD, strict=True)]) == (0.625, "sign-flip, exact")


@given(st.lists(st.fractions(-1, 1, max_denominator=7), min_size=1, max_size=8))
def test_sign_flips_of_pass_rates_are_counted_exactly(differences: list[Fraction]) -> None:
    p, test = sign_flip([float(d) for d in differences])

    assert p == every_assignment(differences)
    assert test == "sign-flip, exact"


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=8), st.sampled_from([1.0, 0.001, math.pi]))
def test_sign_flips_of_any_scores_are_counted_exactly(whole: list[int], unit: float) -> None:
    p, test = sign_flip([unit * d for d in whole])

    assert p == every_assignment([Fraction(d) for d in whole])
    assert test == "sign-flip, exact"


def test_equal_sums_count_though_their_last_digits_differ() -> None:
    thirds = [0.1, 0.2, -0.3]  # 0.1 + 0.2 != 0.3 in floats

    assert sign_flip(thirds) == (1.0, "sign-flip, exact")
    assert sign_flip([math.pi * d for d in thirds])[0] == 1.0


def test_many_rows_of_many_runs_are_counted_exactly_and_fast() -> None:
    random = Random(0)
    differences = [(random.randint(0, 5) - random.randint(0, 5)) / 5 for _ in range(1000)]

    p, test = sign_flip(differences)

    spread = math.sqrt(sum(d * d for d in differences))
    assert p == pytest.approx(math.erfc((abs(sum(differences)) - 0.1) / spread / math.sqrt(2)), abs=0.01)
    assert test == "sign-flip, exact"


def test_permutations_too_many_to_count_are_drawn_and_the_test_is_named_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    random = Random(1)
    differences = [(random.randint(0, 5) - random.randint(0, 5)) / 5 for _ in range(40)]
    exact, _ = sign_flip(differences)
    monkeypatch.setattr(paired, "MAX_EXACT_BITS", 0)

    drawn, test = sign_flip(differences, seed=7)

    assert test == "sign-flip, 20,000 draws, seed 7"
    assert 0.01 < exact < 0.99
    assert drawn == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 20_000))
    assert drawn == sign_flip(differences, seed=7)[0] != sign_flip(differences, seed=8)[0]


def test_a_drawn_p_is_never_zero() -> None:
    p, test = sign_flip([0.1 + i * math.pi / 1e4 for i in range(200)])

    assert test == "sign-flip, 20,000 draws, seed 0"
    assert p == 1 / 20_001


@pytest.mark.parametrize("values", [[1, 0, 1], [0.5, 0.25, 1.0]])
def test_evals_that_agree_on_every_row_show_no_difference(values: list[float]) -> None:
    result = compare(values, values)

    assert (result.better, result.worse, result.difference, result.se, result.p) == (0, 0, 0.0, None, 1.0)


def test_an_interval_of_outcomes_has_a_width_even_if_no_row_flipped() -> None:
    interval = compare([1, 0, 1], [1, 0, 1]).interval

    assert interval is not None
    assert interval.low == -interval.high < -0.1


def test_an_interval_of_means_is_undefined_without_a_spread() -> None:
    assert compare([0.5, 0.75], [0.25, 0.5]).interval is None


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=12))
def test_swapping_new_and_old_reverses_the_sign(pairs: list[tuple[float, float]]) -> None:
    new, old = zip(*pairs, strict=True)
    forth, back = compare(new, old), compare(old, new)

    assert (forth.better, forth.worse) == (back.worse, back.better)
    assert forth.difference == -back.difference
    assert forth.p == back.p


def test_bonett_price_is_wald_with_a_row_added_on_either_side() -> None:
    interval = bonett_price(3, 1, 10)

    up, down = 4 / 12, 2 / 12
    half = 1.959963985 * math.sqrt((up + down - (up - down) ** 2) / 12)
    assert interval.low == pytest.approx(up - down - half)
    assert interval.high == pytest.approx(up - down + half)


def test_lists_of_different_lengths_are_rejected() -> None:
    with pytest.raises(ValueError, match="2 rows cannot be paired with 1"):
        compare([1.0, 0.0], [1.0])
    with pytest.raises(ValueError, match="no values"):
        compare([], [])
    with pytest.raises(ValueError, match="not counts"):
        mcnemar(-1, 2)
    with pytest.raises(ValueError, match="undefined"):
        bonett_price(2, 2, 3)


def test_holm_gives_the_published_vector() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


@given(st.lists(st.floats(0, 1), max_size=20))
def test_holm_adjusts_upwards_and_keeps_the_order(ps: list[float]) -> None:
    adjusted = holm(ps)

    assert all(p <= after <= 1 for p, after in zip(ps, adjusted, strict=True))
    by_p = [after for _, after in sorted(zip(ps, adjusted, strict=True))]
    assert by_p == sorted(by_p)
    if ps:
        assert min(adjusted) == min(1.0, len(ps) * min(ps))
