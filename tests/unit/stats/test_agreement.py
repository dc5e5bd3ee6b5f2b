"""Agreement against published examples, by counting every pair, and what must hold for any ratings."""

from __future__ import annotations

import itertools
import math
import statistics
import sys
from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_osmosis.stats import RatedRow, agreement, vote_agreement
from pytest_osmosis.stats.agreement import (
    BOTH_EQUAL,
    NO_ROWS,
    RATINGS_EQUAL,
    SCORES_EQUAL,
    TOO_LARGE,
    Cells,
    kappa,
    krippendorff_alpha,
    pearson,
    spearman,
    weighted_kappa,
)
from tests.unit.made import ends

CHANCE_CORRECTED = ("kappa", "weighted_kappa", "pearson", "spearman")

ratings = st.sampled_from([0.0, 0.25, 0.5, 1.0, 3.0])
single_runs = st.lists(st.tuples(ratings, ratings), min_size=1, max_size=12)
several_runs = st.lists(st.tuples(ratings, st.lists(ratings, min_size=1, max_size=4)), min_size=1, max_size=8)


def rated(pairs: Sequence[tuple[float, float]]) -> list[RatedRow]:
    """Rows of one run, of pairs of a rating and a score."""
    return [RatedRow(rating, [score]) for rating, score in pairs]


def counted(table: Sequence[Sequence[int]]) -> list[RatedRow]:
    """Rows of one run: `table[rating][score]` of them have these labels."""
    cells = [(float(i), float(j), n) for i, row in enumerate(table) for j, n in enumerate(row)]
    return rated([(rating, score) for rating, score, n in cells for _ in range(n)])


def cells(pairs: Sequence[tuple[float, float]]) -> Cells:
    return Cells([score for _, score in pairs], [rating for rating, _ in pairs], [1.0] * len(pairs))


def kappa_by_pairs(pairs: Sequence[tuple[float, float]], *, quadratic: bool) -> float:
    """Kappa from its definition: 1 - disagreement / disagreement of all ratings with all scores."""

    def cost(rating: float, score: float) -> float:
        return (rating - score) ** 2 if quadratic else float(rating != score)

    observed = statistics.fmean(cost(*pair) for pair in pairs)
    expected = statistics.fmean(cost(rating, score) for (rating, _), (_, score) in itertools.product(pairs, pairs))
    return 1 - observed / expected


@pytest.mark.parametrize(
    ("table", "expected"),
    [
        ([[20, 5], [10, 15]], 0.4),  # the examples of Wikipedia's "Cohen's kappa"
        ([[45, 15], [25, 15]], 0.1304),
        ([[25, 35], [5, 35]], 0.2593),
        ([[88, 14, 18], [10, 40, 10], [2, 6, 12]], 0.4915),  # by hand: (0.70 - 0.41) / (1 - 0.41)
    ],
)
def test_kappa_of_published_tables(table: list[list[int]], expected: float) -> None:
    assert agreement(counted(table)).kappa.value == pytest.approx(expected, abs=5e-5)


def test_weighted_kappa_by_hand() -> None:
    found = agreement(rated([(1, 1), (2, 2), (3, 3), (4, 2)])).weighted_kappa.value

    assert found == pytest.approx(1 - (4 / 4) / (32 / 16))  # the 16 pairs differ by 32 in squares


def test_correlations_of_published_examples() -> None:
    ratings_of_anscombe = [10, 8, 13, 9, 11, 14, 6, 4, 12, 7, 5]
    scores_of_anscombe = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    anscombe = agreement(rated([*zip(ratings_of_anscombe, scores_of_anscombe, strict=True)]))
    wikipedia = agreement(
        rated([(106, 7), (100, 27), (86, 2), (101, 50), (99, 28), (103, 29), (97, 20), (113, 12), (112, 6), (110, 17)])
    )

    assert anscombe.pearson.value == pytest.approx(0.81642, abs=5e-6)
    assert wikipedia.spearman.value == pytest.approx(-29 / 165)


@pytest.mark.parametrize(
    ("pairs", "undefined"),
    [
        ([], NO_ROWS),
        ([(1, 1)], BOTH_EQUAL),
        ([(1, 1)] * 9, BOTH_EQUAL),
        ([(1, 0)] * 9, BOTH_EQUAL),
        ([(1, 0), (1, 1)], RATINGS_EQUAL),
        ([(1, 0.5), (0, 0.5)], SCORES_EQUAL),
    ],
)
def test_constant_ratings_leave_nothing_to_correct_for_chance(pairs: list[tuple[float, float]], undefined: str) -> None:
    found = agreement(rated(pairs))

    for name in CHANCE_CORRECTED:
        assert getattr(found, name) == (None, None, undefined)


def test_constant_ratings_still_have_shares_and_a_bias_but_not_without_rows() -> None:
    found = agreement([RatedRow(1.0, [])], tolerance=0.5)

    assert (found.n_rows, found.n_runs) == (0, 0)
    assert found.equal == found.within == found.mean_difference == (None, None, NO_ROWS)

    constant = agreement(rated([(1.0, 1.0)] * 19 + [(1.0, 0.5)]), tolerance=0.5)

    assert (constant.equal.value, constant.mean_difference.value) == (0.95, -0.025)
    assert constant.within is not None
    assert constant.within.value == 1.0
    assert constant.equal.interval is not None
    assert constant.equal.interval.method == "Gaffke, mid-p"


def test_a_tolerance_includes_its_bound_and_rounding_errors_do_not_make_scores_differ() -> None:
    found = agreement(rated([(0.3, 0.1), (0.3, 0.2), (0.3, 0.5), (0.3, 0.51)]), tolerance=0.2)
    rounded = agreement(rated([(0.3, 0.1 + 0.2), (1.0, 1.0), (0.0, -0.0), (0.5, 0.5)]))

    assert found.within is not None
    assert found.within.value == 0.75
    assert (rounded.equal.value, rounded.kappa.value) == (1.0, 1.0)


@given(single_runs)
def test_kappas_are_those_of_their_definition(pairs: list[tuple[float, float]]) -> None:
    plain, weighted = kappa(cells(pairs)), weighted_kappa(cells(pairs))

    if plain is None or weighted is None:
        assert any(len({pair[side] for pair in pairs}) == 1 for side in (0, 1))
        return
    assert plain == pytest.approx(kappa_by_pairs(pairs, quadratic=False))
    assert weighted == pytest.approx(kappa_by_pairs(pairs, quadratic=True))


@given(single_runs)
def test_correlations_are_those_of_the_standard_library(pairs: list[tuple[float, float]]) -> None:
    linear, ranked = pearson(cells(pairs)), spearman(cells(pairs))

    if linear is not None:
        sides = [list(side) for side in zip(*pairs, strict=True)]
        ranks = [
            [sum(other < value for other in side) + sum(other == value for other in side) / 2 for value in side]
            for side in sides
        ]
        assert linear == pytest.approx(statistics.correlation(*sides))
        assert ranked == pytest.approx(statistics.correlation(*ranks))


@given(several_runs, st.integers(1, 3))
def test_weights_count_pairs(rows: list[tuple[float, list[float]]], times: int) -> None:
    pairs = [(rating, score) for rating, scores in rows for score in scores]
    weighted = cells(pairs)._replace(weights=[float(times)] + [1.0] * (len(pairs) - 1))

    for statistic in (kappa, weighted_kappa, pearson, spearman):
        value = statistic(weighted)
        repeated = statistic(cells([pairs[0]] * (times - 1) + pairs))
        assert (value is None) == (repeated is None)
        assert value is None or value == pytest.approx(repeated)


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(several_runs)
def test_intervals_contain_their_figures_and_possible_values_only(rows: list[tuple[float, list[float]]]) -> None:
    found = agreement([RatedRow(*row) for row in rows], tolerance=0.25)

    assert found.n_runs == sum(len(scores) for _, scores in rows)
    for name in ("equal", "within", *CHANCE_CORRECTED, "mean_difference"):
        value, interval, undefined = getattr(found, name)
        assert (value is None) == (interval is None) == bool(undefined)
        if value is not None:
            low = {"equal": 0.0, "within": 0.0, "mean_difference": -3.0}.get(
                name, -math.inf if name == "kappa" else -1.0
            )
            high = 3.0 if name == "mean_difference" else 1.0
            assert low - 1e-9 <= interval.low <= value <= interval.high <= high + 1e-9


@pytest.mark.slow
@settings(max_examples=10, deadline=None)
@given(several_runs, st.randoms())
def test_the_order_of_rows_and_runs_changes_nothing(rows: list[tuple[float, list[float]]], random: object) -> None:
    shuffled = [(rating, list(scores)) for rating, scores in rows]
    for _, scores in shuffled:
        random.shuffle(scores)  # type: ignore[attr-defined]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = (agreement([RatedRow(*row) for row in each]) for each in (rows, shuffled))

    for name in ("equal", *CHANCE_CORRECTED, "mean_difference"):
        assert getattr(one, name).value == pytest.approx(getattr(other, name).value)
        if getattr(one, name).interval is not None:
            assert ends(getattr(one, name).interval) == pytest.approx(ends(getattr(other, name).interval))


def test_runs_of_a_row_that_agree_count_as_one_and_few_rows_prove_little() -> None:
    pairs = [(1.0, 1.0)] * 6 + [(0.0, 0.0)] * 6 + [(1.0, 0.0)] * 3
    once, often = (agreement([RatedRow(rating, [score] * n) for rating, score in pairs]) for n in (1, 20))

    for name in ("equal", *CHANCE_CORRECTED, "mean_difference"):
        one, other = getattr(once, name), getattr(often, name)
        assert one.value == pytest.approx(other.value)
        assert one.interval.low == pytest.approx(other.interval.low, abs=0.08)
        assert one.interval.high == pytest.approx(other.interval.high, abs=0.08)

    five, sixty = (agreement(rated([(1.0, 1.0), (0.0, 0.0)] * n)).kappa for n in (3, 60))

    assert five.value == sixty.value == 1.0
    assert five.interval is not None
    assert sixty.interval is not None
    assert five.interval.low < 0.5 < 0.9 < sixty.interval.low
    assert five.interval.high == sixty.interval.high == 1.0


KRIPPENDORFF = """
1 2 3 3 2 1 4 1 2 . . .
1 2 3 3 2 2 4 1 2 5 . 3
. 3 3 3 2 3 4 2 2 5 1 .
1 2 3 3 2 4 4 1 2 5 1 .
"""
"""Four observers and twelve units, from Krippendorff 2011, "Computing Krippendorff's alpha-reliability"."""


def units(table: str) -> list[list[float]]:
    observers = [line.split() for line in table.strip().splitlines()]
    return [[float(value) for value in unit if value != "."] for unit in zip(*observers, strict=True)]


def test_alpha_is_that_of_the_published_example_and_of_pairs_and_needs_two_votes() -> None:
    assert krippendorff_alpha(units(KRIPPENDORFF)) == pytest.approx(0.849, abs=5e-4)

    votes = [[0.0, 0.5], [1.0, 1.0], [0.5, 0.5]]
    everything = [vote for run in votes for vote in run]
    observed = statistics.fmean((one - other) ** 2 for one, other in votes)
    expected = statistics.fmean((one - other) ** 2 for one, other in itertools.permutations(everything, 2))

    assert vote_agreement([[run] for run in votes]).alpha == pytest.approx(1 - observed / expected)

    found = vote_agreement([[[1.0], [1.0, 0.0]], [[]], [[0.5, 0.5, 0.5]]])
    equal = vote_agreement([[[1.0, 1.0]], [[1.0, 1.0, 1.0]]])

    assert (found.runs, found.equal) == (2, 0.5)
    assert vote_agreement([[[1.0]], []]) == (0, None, None, None)
    assert (equal.equal, equal.alpha) == (1.0, None)
    assert equal.interval is not None
    assert equal.interval.low < 0.5


@given(st.lists(st.lists(ratings, min_size=2, max_size=5), min_size=1, max_size=8))
def test_equal_votes_are_shares_of_pairs(runs: list[list[float]]) -> None:
    shares = [statistics.fmean(one == other for one, other in itertools.combinations(votes, 2)) for votes in runs]
    found = vote_agreement([[votes] for votes in runs])

    assert found.equal == pytest.approx(statistics.fmean(shares))
    assert (found.alpha is None) == (len(Counter(vote for votes in runs for vote in votes)) == 1)
    assert found.alpha is None or found.alpha <= 1


@pytest.mark.parametrize("unit", [2.0**600, 2.0**1000, 2.0**-600])
def test_huge_and_tiny_scores_agree_as_others_do(unit: float) -> None:
    rows = [RatedRow(1.0, [1.0, 0.5]), RatedRow(0.5, [0.25]), RatedRow(0.0, [0.0]), RatedRow(1.0, [0.25])]
    scaled = [RatedRow(row.rating * unit, [score * unit for score in row.scores]) for row in rows]
    found, expected = agreement(scaled, 0.55 * unit), agreement(rows, 0.55)

    for name in ("equal", "within", "kappa", "weighted_kappa", "pearson", "spearman"):
        assert getattr(found, name).value == pytest.approx(getattr(expected, name).value, rel=1e-8), name
    assert expected.mean_difference.value is not None
    assert expected.mean_difference.interval is not None
    assert found.mean_difference.interval is not None
    assert found.mean_difference.value == pytest.approx(expected.mean_difference.value * unit)
    assert ends(found.mean_difference.interval) == pytest.approx(
        [end * unit for end in ends(expected.mean_difference.interval)]
    )
    assert krippendorff_alpha([[unit, unit], [0.0, unit]]) == krippendorff_alpha([[1.0, 1.0], [0.0, 1.0]])


def test_one_huge_score_leaves_correlations_and_no_bias_that_no_float_holds() -> None:
    largest = sys.float_info.max
    found = agreement([RatedRow(1.0, [1e160]), RatedRow(0.0, [0.0]), RatedRow(0.5, [0.5])])
    opposite = agreement([RatedRow(-largest, [largest]), RatedRow(-largest, [0.0]), RatedRow(largest, [-largest])])

    assert found.pearson.value == pytest.approx(0.866025, abs=1e-6)
    assert opposite.pearson.value is not None
    assert (opposite.mean_difference.value, opposite.mean_difference.undefined) == (None, TOO_LARGE)
