"""Confidence intervals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from pytest_osmosis.stats.distributions import normal_quantile, student_t_quantile
from pytest_osmosis.stats.moments import mean, sample_variance

LEVEL = 0.95


class Interval(NamedTuple):
    """An interval that contains the true value in a share `level` of all samples. `method` names the formula."""

    low: float
    high: float
    method: str
    level: float = LEVEL


def wilson(passed: float, n: float, level: float = LEVEL) -> Interval:
    """Return Wilson's score interval of a proportion, `passed` of n independent trials. It lies within 0..1.

    Wilson 1927 (JASA 22, 209). Both numbers may be fractional, like an effective n. Undefined for n <= 0 and for
    `passed` outside 0..n: ValueError.

    >>> interval = wilson(8, 10)
    >>> round(interval.low, 6), round(interval.high, 6)
    (0.490162, 0.943318)
    """
    if not (n > 0 and 0 <= passed <= n):
        raise ValueError(f"the interval of {passed} of {n} is undefined")
    z = normal_quantile((1 + level) / 2)
    center = (passed + z * z / 2) / (n + z * z)
    half = z * math.sqrt(passed * (n - passed) / n + z * z / 4) / (n + z * z)
    low = 0.0 if passed == 0 else max(0.0, center - half)
    high = 1.0 if passed == n else min(1.0, center + half)
    return Interval(low, high, "Wilson", level)


def student_t(values: Sequence[float], level: float = LEVEL) -> Interval | None:
    """Return the interval of the mean of independent values: mean +- t s / sqrt(n), n - 1 degrees of freedom.

    Student 1908 (Biometrika 6, 1). None for one value and for equal values, because the interval would have no
    width. Undefined without values: ValueError.

    >>> interval = student_t([1.0, 0.0, 1.0, 1.0, 0.5, 0.0, 1.0, 1.0, 0.0, 1.0])
    >>> round(interval.low, 6), round(interval.high, 6)
    (0.310676, 0.989324)
    """
    center = mean(values)
    variance = sample_variance(values)
    if not variance:
        return None
    half = student_t_quantile((1 + level) / 2, len(values) - 1) * math.sqrt(variance / len(values))
    return Interval(center - half, center + half, "Student-t", level)
