"""The confidence interval of a mean: of scores, passes, estimates like pass@k, and differences between rows.

It is that of rows with random weights, one independent exponential weight per row. Drawing such weights again and again
is the Bayesian bootstrap (Rubin 1981, Ann. Stat. 9, 130). Their shares of the sum have a flat Dirichlet distribution.
"""

from __future__ import annotations

import cmath
import functools
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

ALPHA = 0.05  # a p below this is significant
POWER = 0.8  # a power below this is called low


def chance_below(margin: float, se: float) -> float:
    """Return the chance that a normal estimate falls below a bound. Its true value lies `margin` below the bound.

    If the standard error is 0: 1.0 or 0.0, and 0.5 if the true value is the bound.

    >>> round(chance_below(0.05, 0.05), 4)
    0.8413
    """
    from statistics import NormalDist

    if se == 0:
        return 0.5 if margin == 0 else float(margin > 0)
    return NormalDist().cdf(margin / se)


def normal_quantile(p: float) -> float:
    """Return the value below which a standard normal variable lies with probability p, 0 < p < 1 (else ValueError).

    >>> round(normal_quantile(0.975), 6)
    1.959964
    """
    from statistics import NormalDist

    if not 0 < p < 1:
        raise ValueError(f"a quantile is defined for 0 < p < 1, not for p = {p}")
    return NormalDist().inv_cdf(p)


STEP = 0.1  # of the trapezoidal rule: twelve digits are right
NEGLIGIBLE = 1e-14
ROUNDING = 1e-15  # a factor that is smaller than this part of the largest is a rounding error
MAX_LEAN = 0.8  # the sine of the angle by which the path turns off the vertical


class RowGroup(NamedTuple):
    """`n_rows` rows of `n_runs` runs each. In each row their values sum to `total`."""

    total: float
    n_runs: float
    n_rows: float = 1


def chance_at_most(value: float, rows: Sequence[RowGroup]) -> float:
    """Return the chance that the mean of all runs, with random weights of the rows, is at most `value`.

    If all runs are 1 or 0, and each row has one, the mean has the beta distribution of (rows with 1, rows with 0).
    Undefined without rows: ValueError.

    >>> round(chance_at_most(0.5, [RowGroup(1, 1, 3), RowGroup(0, 1, 2)]), 9)  # beta(3, 2)
    0.3125
    """
    if not rows:
        raise ValueError("the mean of no rows is undefined")
    return _chance_not_positive([(row.total - value * row.n_runs, row.n_rows) for row in rows])


def _chance_not_positive(terms: Sequence[tuple[float, float]]) -> float:
    """Return the chance that a sum of terms is at most 0, each a factor times a gamma variable of the given shape.

    Inverts the moment generating function, prod (1 - factor s)^-shape, by an integral over s that passes the real axis
    near its saddle point (Daniels 1954, Ann. Math. Stat. 25, 631). The path is a hyperbola that leans like the path of
    steepest descent, so that the integrand does not oscillate. The trapezoidal rule converges exponentially on it
    (Weideman and Trefethen 2007, Math. Comp. 76, 1341).
    """
    size = max(abs(factor) for factor, _ in terms)
    terms = [(factor / size, shape) for factor, shape in terms if abs(factor) > ROUNDING * size]
    largest, smallest = max((factor for factor, _ in terms), default=0), min((factor for factor, _ in terms), default=0)
    if largest <= 0 or smallest >= 0:
        return float(largest <= 0)
    low, high = 1 / smallest, 1 / largest  # the branch points
    away = 1 / math.sqrt(math.fsum(shape * factor * factor for factor, shape in terms))
    start = _saddle(terms, low, high, 1e-6 * away)
    if abs(start) < away:  # too close to the pole at 0
        start = max(-away, low / 2) if start <= 0 else min(away, high / 2)
    height = math.exp(-math.fsum(shape * math.log1p(-factor * start) for factor, shape in terms))
    slopes = [(factor / (1 - factor * start), shape) for factor, shape in terms]
    tail = height * abs(_integral(slopes, start, min(abs(start), start - low, high - start)))
    return min(1.0, tail) if start < 0 else max(0.0, 1 - tail)


def _integral(slopes: Sequence[tuple[float, float]], start: float, room: float) -> float:
    """Return the integral of prod (1 - slope (s - start))^-shape / s along a path through `start`, over 2 pi i.

    `room` is the distance from `start` to the nearest singularity. The path is symmetric, so half of it is computed.
    """
    second, third = (math.fsum(shape * slope**power for slope, shape in slopes) for power in (2, 3))
    scale = min(room, 1 / math.sqrt(second))
    bend = 2 * third * scale / (3 * second)
    lean = (math.sqrt(1 + 4 * bend * bend) - 1) / (2 * bend) if bend else 0.0
    lean = math.copysign(min(abs(lean), MAX_LEAN), lean)
    rise = math.sqrt(1 - lean * lean)
    total = scale * rise / start / 2
    for step in itertools.count(1):
        sinh, cosh = math.sinh(step * STEP), math.cosh(step * STEP)
        away = complex(scale * lean * (cosh - 1), scale * rise * sinh)
        pace = complex(scale * rise * cosh, -scale * lean * sinh)
        powers = [shape * cmath.log(1 - slope * away) for slope, shape in slopes]
        power = complex(math.fsum([each.real for each in powers]), math.fsum([each.imag for each in powers]))
        part = cmath.exp(-power) * pace / (start + away)
        total += part.real
        if abs(part) < NEGLIGIBLE * abs(total):
            return total * STEP / math.pi
    raise AssertionError("unreachable")


def _saddle(terms: Sequence[tuple[float, float]], low: float, high: float, precision: float) -> float:
    """Return about the point between `low` and `high` where the moment generating function is least."""
    point = 0.0
    while True:
        ratios = [(factor / (1 - factor * point), shape) for factor, shape in terms]
        slope = math.fsum(shape * ratio for ratio, shape in ratios)
        low, high = (low, point) if slope > 0 else (point, high)
        step = point - slope / math.fsum(shape * ratio * ratio for ratio, shape in ratios)
        step = step if low < step < high else (low + high) / 2
        if abs(step - point) <= max(precision, 1e-6 * abs(step)):
            return step
        point = step


LEVEL = 0.95
METHOD = "Gaffke, mid-p"
MAX_GROUPS = 400
PRECISION = 1e-10


class Interval(Struct, frozen=True):
    """An interval that contains the true value in a share `level` of all samples."""

    low: float
    """The lower end."""
    high: float
    """The upper end."""
    method: str
    """The name of the formula."""
    level: float = LEVEL
    """The share, 0.95 for every interval that is published."""


def gaffke(
    rows: Sequence[Sequence[float]], lowest: float = 0.0, highest: float = 1.0, level: float = LEVEL
) -> Interval:
    """Return the interval of the mean of all runs over other rows of the same kind, for values in lowest..highest.

    Rows count as units, in whatever way their runs are distributed. Weigh the rows at random (`random_weights`). The
    lower bound of Gaffke (2005, Math. Methods Stat. 14, 451; Learned-Miller and Thomas 2019, arXiv 1905.06208) is the
    value that the mean of these rows and one more, whose runs are all `lowest`, falls below with a chance of
    (1 - level) / 2. For single runs that are 1 or 0 it is Clopper and Pearson's. Like theirs it is cautious, so the
    chance is taken as the average of those with and without the row, just as a mid-p averages the chances with and
    without the observed case. The upper bound mirrors it. If numbers of runs differ, the further row has as many as the
    row of a run drawn at random: the long rows decide about the mean, and they are fewer than all rows.

    The interval lies in lowest..highest and contains the mean. Both ends rise, or stay, if any value rises. With more
    than `MAX_GROUPS` different rows, rows that are nearly alike count as alike. Undefined without a run, and for values
    outside lowest..highest: ValueError.

    >>> interval = gaffke([[1.0]] * 8 + [[0.0]] * 2)
    >>> round(interval.low, 6), round(interval.high, 6)
    (0.471359, 0.973434)
    """
    rows = [row for row in rows if row]
    if not rows:
        raise ValueError("the interval of no values is undefined")
    if any(not lowest <= value <= highest for row in rows for value in row):
        raise ValueError(f"the interval is undefined for values outside {lowest:g}..{highest:g}")
    unit = 2.0 ** (math.frexp(max(abs(lowest), abs(highest)))[1] - 1)  # so that sums cannot overflow
    groups = _grouped((math.fsum(value / unit for value in row), len(row)) for row in rows)
    mirrored = tuple(group._replace(total=-group.total) for group in groups)
    tail = (1 - level) / 2
    low, high = _lower_bound(groups, lowest / unit, tail), -_lower_bound(mirrored, -highest / unit, tail)
    return Interval(max(lowest, low * unit), min(highest, high * unit), METHOD, level)


def score_range(scores: Iterable[float], declared: tuple[float, float] = (0.0, 1.0)) -> tuple[float, float]:
    """Return the range in which scores are taken to lie: the declared one, and as far beyond as the scores do.

    >>> score_range([0.5, 1.0]), score_range([3.0, -1.0]), score_range([0.5], (-1.0, 1.0))
    ((0.0, 1.0), (-1.0, 3.0), (-1.0, 1.0))
    """
    scores = list(scores)
    return min(declared[0], *scores), max(declared[1], *scores)


def lower_tail(value: float, groups: Sequence[RowGroup], lowest: float) -> float:
    """Return the chance that decides about a value: the lower bound lies above it if this is below (1 - level) / 2."""
    n_runs = runs_of_one_more(groups)
    one_more = RowGroup(lowest * n_runs, n_runs)
    return (chance_at_most(value, groups) + chance_at_most(value, [*groups, one_more])) / 2


def runs_of_one_more(groups: Sequence[RowGroup]) -> float:
    """Return the number of runs of a further row: the mean over runs of the number of runs in their row.

    The number of all runs divided by it is Kish's effective number of rows (1965, Survey Sampling, section 11.7).

    >>> runs_of_one_more([RowGroup(5, 5, 8)]), runs_of_one_more([RowGroup(1, 1, 20), RowGroup(20, 20)])
    (5.0, 10.5)
    """
    squares = math.fsum(group.n_rows * group.n_runs * group.n_runs for group in groups)
    return squares / math.fsum(group.n_rows * group.n_runs for group in groups)


@functools.lru_cache(maxsize=256)  # a few rows take longest, and an eval asks for the same ones several times
def _lower_bound(groups: tuple[RowGroup, ...], lowest: float, tail: float) -> float:
    """Return the value whose `lower_tail` is `tail`: there the normal quantiles, almost linear, are equal."""
    n_runs = math.fsum(group.n_rows * group.n_runs for group in groups)
    mean = math.fsum(group.n_rows * group.total for group in groups) / n_runs
    if mean <= lowest or all(group.total <= lowest * group.n_runs for group in groups):
        return lowest

    def excess(value: float) -> float:
        chance = lower_tail(value, groups, lowest)
        return normal_quantile(min(max(chance, 1e-300), 1 - 1e-16)) - normal_quantile(tail)

    spread = math.sqrt(math.fsum(g.n_rows * (g.total - mean * g.n_runs) ** 2 for g in groups)) / n_runs
    return crossing(excess, lowest, mean, mean + normal_quantile(tail) * spread)


def crossing(
    excess: Callable[[float], float], low: float, high: float, *guesses: float, precision: float = PRECISION
) -> float:
    """Return about where a function that rises from below 0 at `low` to above 0 at `high` is 0.

    Searches by regula falsi (the Illinois variant), and looks at the `guesses` first.
    """
    at_low, at_high = excess(low), excess(high)
    value, moved, further = low, 0, iter(guesses)
    for _ in range(200):
        value = next(further, (low * at_high - high * at_low) / (at_high - at_low))
        if not low < value < high:
            value = (low + high) / 2
        found = excess(value)
        if abs(found) < precision or high - low < precision:
            break
        if found < 0:
            low, at_low = value, found
            at_high /= 2 if moved < 0 else 1
        else:
            high, at_high = value, found
            at_low /= 2 if moved > 0 else 1
        moved = -1 if found < 0 else 1
    return value


def agreeing(interval: Interval, p: float, end: Callable[[], float], method: str) -> Interval:
    """Return an interval that contains 0 exactly if p is at least `ALPHA`.

    If it must contain 0, it is extended to 0, which only makes it wider. If it must not, its end beyond 0 becomes the
    `end` that the test gives, by a `method`.
    """
    if (interval.low <= 0 <= interval.high) == (p >= ALPHA):
        return interval
    if p >= ALPHA:
        method = f"{interval.method}, extended to 0"
        return replace(interval, low=min(interval.low, 0.0), high=max(interval.high, 0.0), method=method)
    value, method = end(), f"{interval.method}, {method}"
    return replace(interval, low=value, method=method) if value > 0 else replace(interval, high=value, method=method)


def _grouped(rows: Iterable[tuple[float, int]]) -> tuple[RowGroup, ...]:
    """Group rows, each a total and a number of runs. Beyond `MAX_GROUPS` groups, rows with similar means are alike."""
    counts = Counter(rows)
    if len(counts) <= MAX_GROUPS:
        return tuple(RowGroup(total, n_runs, n_rows) for (total, n_runs), n_rows in counts.items())
    means = [total / n_runs for total, n_runs in counts]
    low, width = min(means), (max(means) - min(means)) / MAX_GROUPS or 1.0
    alike: dict[tuple[int, int], Counter[float]] = defaultdict(Counter)
    for (total, n_runs), n_rows in counts.items():
        alike[n_runs, int((total / n_runs - low) / width)][total] = n_rows
    return tuple(
        RowGroup(math.fsum(total * n for total, n in totals.items()) / totals.total(), n_runs, totals.total())
        for (n_runs, _), totals in alike.items()
    )
