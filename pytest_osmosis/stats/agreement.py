"""Agreement of scores with ratings by humans, and of the votes of a judge with one another.

Rows are clusters: the runs of a row share one human rating, and resemble one another. Every run weighs the same. Values
that differ by rounding errors only count as equal. A figure that is not defined, such as a correlation with ratings
that are all equal, is None, and never 0 or 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import mul
from random import Random
from typing import NamedTuple

from pytest_osmosis.stats.intervals import LEVEL, Interval, gaffke, score_range
from pytest_osmosis.stats.summary import mean, percentile, unit_of

BOOTSTRAP = "Bayesian bootstrap, mid-p"
DRAWS = 500
FEWEST_DRAWS = 200
MOST_WEIGHTS = 150_000  # the draws times the different rows, if that leaves `FEWEST_DRAWS` draws
DIGITS = 9  # significant digits: values that agree in them are equal

NO_ROWS = "no run has a score and a human score"
SCORES_EQUAL = "all scores are equal"
RATINGS_EQUAL = "all human scores are equal"
TOO_LARGE = "no float can hold it"
BOTH_EQUAL = "all scores are equal, and so are all human scores"


class RatedRow(NamedTuple):
    """The rating of a row by humans, and the scores of its runs."""

    rating: float
    scores: Sequence[float]


class Figure(NamedTuple):
    """A figure with its 95% interval. Both are None if it is not defined, and `undefined` says why."""

    value: float | None
    interval: Interval | None = None
    undefined: str = ""


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of one function's scores with ratings by humans, over `n_runs` runs of `n_rows` rows."""

    n_rows: int
    n_runs: int
    equal: Figure
    """The share of scores that equal their rating."""
    within: Figure | None
    """The share of scores that lie within the tolerance of their rating, None without a tolerance."""
    kappa: Figure
    """Cohen's kappa, with values as labels."""
    weighted_kappa: Figure
    """Cohen's kappa with quadratic weights."""
    pearson: Figure
    """Pearson's correlation."""
    spearman: Figure
    """Spearman's rank correlation."""
    mean_difference: Figure
    """The mean of score minus rating."""


class Cells(NamedTuple):
    """Pairs of a score and a rating, and the weight of each pair, above 0."""

    scores: Sequence[float]
    ratings: Sequence[float]
    weights: Sequence[float]


def agreement(rows: Iterable[RatedRow], tolerance: float | None = None) -> Agreement:
    """Return how far the scores of rows agree with their ratings. Rows without scores are left out.

    >>> rows = [RatedRow(1, [1]), RatedRow(0, [0]), RatedRow(1, [0]), RatedRow(0, [0])]
    >>> found = agreement(rows)
    >>> found.equal.value, found.kappa.value, found.mean_difference.value
    (0.75, 0.5, -0.25)
    """
    rated = [RatedRow(_rounded(row.rating), [*map(_rounded, row.scores)]) for row in rows if row.scores]
    unit = unit_of(value for row in rated for value in (row.rating, *row.scores))
    if unit != 1.0:
        rated = [RatedRow(row.rating / unit, [score / unit for score in row.scores]) for row in rated]
    return Agreement(
        n_rows=len(rated),
        n_runs=sum(len(row.scores) for row in rated),
        equal=_share(rated, 0.0),
        within=None if tolerance is None else _share(rated, tolerance / unit),
        mean_difference=_times(_mean_difference(rated), unit),
        **_chance_corrected(rated),
    )


class VoteAgreement(NamedTuple):
    """The agreement of the votes of one judge, over `runs` with at least two votes.

    `equal` is the mean share of pairs of a run's votes that are equal, `alpha` Krippendorff's alpha. Both are None
    without such runs, and `alpha` also if all votes of all runs are equal.
    """

    runs: int
    equal: float | None = None
    interval: Interval | None = None
    """The 95% interval of `equal`, with rows as units."""
    alpha: float | None = None


def vote_agreement(rows: Iterable[Sequence[Sequence[float]]]) -> VoteAgreement:
    """Return how far votes agree: rows of runs of votes. Runs with fewer than two votes are left out.

    Alpha is Krippendorff's (2004, Content Analysis, chapter 11) for numbers, whose differences are squared. It corrects
    for the agreement that votes drawn at random from all votes would have.

    >>> found = vote_agreement([[[1, 1, 1]], [[0, 0, 1]]])
    >>> round(found.equal, 3), round(found.alpha, 3)
    (0.667, 0.375)
    """
    voted = [[[*map(_rounded, votes)] for votes in row if len(votes) > 1] for row in rows]
    runs = [votes for row in voted for votes in row]
    if not runs:
        return VoteAgreement(0)
    shares = [[_equal_pairs(votes) for votes in row] for row in voted if row]
    values = [share for row in shares for share in row]
    return VoteAgreement(len(runs), mean(values), gaffke(shares), krippendorff_alpha(runs))


def krippendorff_alpha(units: Sequence[Sequence[float]]) -> float | None:
    """Return Krippendorff's alpha for numbers; units may have different numbers of values.

    None if no unit has two values, or if all values are equal.

    >>> krippendorff_alpha([[1, 1], [2, 2], [3, 3]])
    1.0
    """
    paired = [values for values in units if len(values) > 1]
    unit = unit_of(value for values in paired for value in values)
    if unit != 1.0:
        paired = [[value / unit for value in values] for values in paired]
    everything = [value for values in paired for value in values]
    if len(set(everything)) < 2:
        return None
    observed = math.fsum(2 * len(values) / (len(values) - 1) * _squares(values) for values in paired)
    expected = 2 * len(everything) / (len(everything) - 1) * _squares(everything)
    return 1 - observed / expected


def kappa(cells: Cells) -> float | None:
    """Return Cohen's kappa (1960, Educ. Psychol. Meas. 20, 37), with values as labels: (p_o - p_e) / (1 - p_e).

    p_o is the share of equal pairs, p_e the one that labels drawn independently would have. None if all scores or all
    ratings are equal: nothing then tells agreement from chance.
    """
    if _undefined(cells):
        return None
    by_score: defaultdict[float, float] = defaultdict(float)
    by_rating: defaultdict[float, float] = defaultdict(float)
    equal = total = 0.0
    for score, rating, weight in zip(*cells, strict=True):
        by_score[score] += weight
        by_rating[rating] += weight
        total += weight
        if score == rating:
            equal += weight
    expected = math.fsum(weight * by_rating.get(label, 0.0) for label, weight in by_score.items()) / total**2
    return (equal / total - expected) / (1 - expected)


def weighted_kappa(cells: Cells) -> float | None:
    """Return Cohen's kappa with quadratic weights (1968, Psychol. Bull. 70, 213).

    1 - E[(x - y)^2] / E'[(x - y)^2], where E' takes scores and ratings as independent. For any numbers that equals
    Lin's concordance correlation (1989, Biometrics 45, 255) with population variances. None as for `kappa`.
    """
    if _undefined(cells):
        return None
    moments = _moments(cells)
    apart = (moments.score - moments.rating) ** 2
    return 2 * moments.covariance / (moments.score_variance + moments.rating_variance + apart)


def pearson(cells: Cells) -> float | None:
    """Return Pearson's correlation, -1..1. None if all scores or all ratings are equal."""
    if _undefined(cells):
        return None
    scores, ratings = unit_of(cells.scores), unit_of(cells.ratings)
    if scores != 1.0 or ratings != 1.0:
        scaled = [score / scores for score in cells.scores], [rating / ratings for rating in cells.ratings]
        cells = Cells(*scaled, cells.weights)
    moments = _moments(cells)
    spread = math.sqrt(moments.score_variance) * math.sqrt(moments.rating_variance)
    return max(-1.0, min(1.0, moments.covariance / spread)) if spread else None


def spearman(cells: Cells) -> float | None:
    """Return Spearman's correlation, Pearson's of ranks. Equal values share the mean of their ranks."""
    return pearson(Cells(_ranks(cells.scores, cells.weights), _ranks(cells.ratings, cells.weights), cells.weights))


CHANCE_CORRECTED: dict[str, Callable[[Cells], float | None]] = {
    "kappa": kappa,
    "weighted_kappa": weighted_kappa,
    "pearson": pearson,
    "spearman": spearman,
}
"""The figures of `Agreement` that are no means, and so have bootstrap intervals."""


def _share(rows: Sequence[RatedRow], tolerance: float) -> Figure:
    if not rows:
        return Figure(None, undefined=NO_ROWS)
    near = [[float(abs(_rounded(score - row.rating)) <= tolerance) for score in row.scores] for row in rows]
    return Figure(mean([value for row in near for value in row]), gaffke(near))


def _mean_difference(rows: Sequence[RatedRow]) -> Figure:
    if not rows:
        return Figure(None, undefined=NO_ROWS)
    errors = [[score - row.rating for score in row.scores] for row in rows]
    low, high = score_range(value for row in rows for value in (row.rating, *row.scores))
    return Figure(mean([error for row in errors for error in row]), gaffke(errors, low - high, high - low))


def _times(figure: Figure, unit: float) -> Figure:
    """Return a figure in another unit, undefined if no float can hold it."""
    if figure.value is None or figure.interval is None or unit == 1.0:
        return figure
    low, high = figure.interval.low * unit, figure.interval.high * unit
    if not (math.isfinite(low) and math.isfinite(high)):
        return Figure(None, undefined=TOO_LARGE)
    return Figure(figure.value * unit, replace(figure.interval, low=low, high=high))


def _chance_corrected(rows: Sequence[RatedRow]) -> dict[str, Figure]:
    if not rows:
        return dict.fromkeys(CHANCE_CORRECTED, Figure(None, undefined=NO_ROWS))
    groups = Counter(sorted((row.rating, tuple(sorted(row.scores))) for row in rows))  # the order of rows has no effect
    cells = _weighted([(rating, scores, float(n)) for (rating, scores), n in groups.items()])
    undefined = _undefined(cells)
    values = {name: statistic(cells) for name, statistic in CHANCE_CORRECTED.items()}
    if undefined or None in values.values():
        return dict.fromkeys(CHANCE_CORRECTED, Figure(None, undefined=undefined or SCORES_EQUAL))
    lower, upper = _drawn(groups)
    tail = 100 * (1 - LEVEL) / 2
    return {
        name: Figure(
            value,
            Interval(
                min(value, percentile(lower[name], tail)), max(value, percentile(upper[name], 100 - tail)), BOOTSTRAP
            ),
        )
        for name, value in values.items()
        if value is not None
    }


_Groups = Counter[tuple[float, tuple[float, ...]]]


def _drawn(groups: _Groups) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Return values of each figure with random weights of the rows, for the lower and for the upper end.

    Half of them are without a further row. The other half has one more: for the lower end one that pairs the score and
    the rating of different rows, which agree by chance only, and for the upper end one in which they are equal.
    """
    rows = list(groups.elements())
    scores = [score for _, scores in rows for score in scores]
    ratings = [rating for rating, scores in rows for _ in scores]
    ends = min(*scores, *ratings), max(*scores, *ratings)
    n_runs = len(scores) / len(rows)
    random = Random(0)
    times = max(FEWEST_DRAWS, min(DRAWS, MOST_WEIGHTS // len(groups)))
    as_they_are = _values(groups, times, random, lambda: ())
    apart = _values(groups, times, random, lambda: [(random.choice(ratings), random.choice(scores), n_runs)])
    equal = _values(groups, times, random, lambda: [(end := random.choice(ends), end, n_runs)])
    return _joined(as_they_are, apart), _joined(as_they_are, equal)


def _values(
    groups: _Groups, times: int, random: Random, further: Callable[[], Iterable[tuple[float, float, float]]]
) -> dict[str, list[float]]:
    """Draw the figures `times` times, with each `further` row: its rating, its score and its number of runs.

    Each row has an exponential weight (Rubin 1981, Ann. Stat. 9, 130). Equal rows share the sum of theirs.
    """
    found: dict[str, list[float]] = {name: [] for name in CHANCE_CORRECTED}
    for _ in range(times):
        drawn: list[tuple[float, Sequence[float], float]] = [
            (rating, scores, random.gammavariate(n, 1.0) if n > 1 else random.expovariate(1.0))
            for (rating, scores), n in groups.items()
        ]
        drawn += [(rating, (score,), n * random.expovariate(1.0)) for rating, score, n in further()]
        cells = _weighted(drawn)
        for name, statistic in CHANCE_CORRECTED.items():
            value = statistic(cells)
            if value is not None:
                found[name].append(value)
    return found


def _joined(one: dict[str, list[float]], other: dict[str, list[float]]) -> dict[str, list[float]]:
    return {name: one[name] + other[name] for name in CHANCE_CORRECTED}


def _weighted(rows: Iterable[tuple[float, Sequence[float], float]]) -> Cells:
    """Return the pairs of rows, each with its rating, its scores, and the weight of each of its runs."""
    pairs = [(score, rating, weight) for rating, scores, weight in rows for score in scores]
    return Cells(*map(list, zip(*pairs, strict=True))) if pairs else Cells([], [], [])


def _undefined(cells: Cells) -> str:
    """Return why nothing can be corrected for chance, "" if it can."""
    scores, ratings = (len(set(values)) < 2 for values in (cells.scores, cells.ratings))
    if not cells.scores:
        return NO_ROWS
    if scores and ratings:
        return BOTH_EQUAL
    return SCORES_EQUAL if scores else RATINGS_EQUAL if ratings else ""


class _Moments(NamedTuple):
    score: float
    rating: float
    score_variance: float
    rating_variance: float
    covariance: float


def _moments(cells: Cells) -> _Moments:
    scores, ratings, weights = cells
    total = math.fsum(weights)
    score, rating = sum(map(mul, weights, scores)) / total, sum(map(mul, weights, ratings)) / total
    of_scores, of_ratings = [value - score for value in scores], [value - rating for value in ratings]
    weighted = [*map(mul, weights, of_scores)]
    return _Moments(
        score,
        rating,
        sum(map(mul, weighted, of_scores)) / total,
        sum(map(mul, weights, map(mul, of_ratings, of_ratings))) / total,
        sum(map(mul, weighted, of_ratings)) / total,
    )


def _ranks(values: Sequence[float], weights: Sequence[float]) -> list[float]:
    """Return the weight below each value, and half of that of the values that equal it."""
    by_value: defaultdict[float, float] = defaultdict(float)
    for value, weight in zip(values, weights, strict=True):
        by_value[value] += weight
    below, ranks = 0.0, {}
    for value in sorted(by_value):
        ranks[value] = below + by_value[value] / 2
        below += by_value[value]
    return [ranks[value] for value in values]


def _equal_pairs(votes: Sequence[float]) -> float:
    """Return the share of pairs of votes that are equal."""
    equal = sum(math.comb(times, 2) for times in Counter(votes).values())
    return equal / math.comb(len(votes), 2)


def _squares(values: Sequence[float]) -> float:
    center = mean(values)
    return math.fsum((value - center) ** 2 for value in values)


def _rounded(value: float) -> float:
    """Return a value without digits that only rounding errors change."""
    return float(f"{value:.{DIGITS}g}") + 0.0
