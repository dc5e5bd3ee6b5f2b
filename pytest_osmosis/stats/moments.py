"""Mean, spread and percentiles of a list of values.

Values are finite floats. Sums are exact; they overflow or underflow only if the result does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, summed exactly (`math.fsum`). Undefined without values: ValueError.

    >>> mean([0.1, 0.2, 0.6])
    0.3
    """
    _need_values("mean", values)
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum overflows a float, the mean does not
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float:
    """Return the population's standard deviation, sqrt(sum((x - mean)^2) / n): divided by n, not by n - 1.

    The Osmosis SDK's eval mode does the same. 0.0 for one value; undefined without values: ValueError.

    >>> std([0.0, 1.0, 0.0, 1.0])
    0.5
    """
    center = mean(values)
    deviations = [value - center for value in values]
    scale = max(map(abs, deviations))
    if scale == 0.0:
        return 0.0
    return scale * math.sqrt(math.fsum((deviation / scale) ** 2 for deviation in deviations) / len(values))


def sample_variance(values: Sequence[float]) -> float | None:
    """Return the unbiased variance, sum((x - mean)^2) / (n - 1). None for one value. Without values: ValueError.

    >>> sample_variance([0.0, 1.0, 0.0, 1.0])
    0.3333333333333333
    """
    _need_values("variance", values)
    n = len(values)
    return None if n == 1 else std(values) ** 2 * n / (n - 1)


def percentile(values: Sequence[float], p: float) -> float:
    """Return the value below which p percent of the values lie, interpolated between neighbours.

    Type 7 of Hyndman and Fan 1996 (Am. Stat. 50, 361), like numpy; p = 50 is the median. Undefined without values and
    for p outside 0..100: ValueError.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 25)
    1.75
    """
    _need_values("percentile", values)
    if not 0 <= p <= 100:
        raise ValueError(f"a percentile is defined for 0 <= p <= 100, not for p = {p}")
    ordered = sorted(values)
    below, part = divmod(p / 100 * (len(ordered) - 1), 1)
    lower, upper = ordered[int(below)], ordered[min(int(below) + 1, len(ordered) - 1)]
    return lower * (1 - part) + upper * part if lower != upper else lower


def _need_values(name: str, values: Sequence[float]) -> None:
    if not values:
        raise ValueError(f"the {name} of no values is undefined")
