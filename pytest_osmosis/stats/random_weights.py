"""The mean of rows whose weights are random: one independent exponential weight per row.

Drawing such weights again and again is the Bayesian bootstrap (Rubin 1981, Ann. Stat. 9, 130). Their shares of the sum
have a flat Dirichlet distribution.
"""

from __future__ import annotations

import cmath
import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

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
