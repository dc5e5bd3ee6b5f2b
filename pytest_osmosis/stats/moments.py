"""Mean, spread and percentiles of a list of values.

Values are finite floats. Sums are exact; they overflow or underflow only if the result does. A statistic that no float
can hold is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

LARGE = 2.0**400
"""The largest value whose squares are summed as they are; the inverse of it is the smallest."""


def held(value: float) -> float | None:
    """Return a value, None if no float can hold it.

    >>> held(1e300), held(1e300 * 1e300)
    (1e+300, None)
    """
    return value if math.isfinite(value) else None


def unit_of(values: Iterable[float]) -> float:
    """Return the power of two by which values are divided exactly, so that their squares fit floats; mostly 1.0.

    >>> unit_of([0.2, 5.0]), unit_of([-1e160]) > 1e159
    (1.0, True)
    """
    largest = max(map(abs, values), default=0.0)
    return 1.0 if largest == 0 or 1 / LARGE <= largest <= LARGE else 2.0 ** (math.frexp(largest)[1] - 1)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean, summed exactly (`math.fsum`). Undefined without values: ValueError.

    >>> mean([0.1, 0.2, 0.6])
    0.3
    """
    _need_values("mean", values)
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum overflows a float, the mean does not
        unit = 2.0 ** len(values).bit_length()
        found = math.fsum(value / unit for value in values) / len(values) * unit
        return min(max(found, min(values)), max(values))


def std(values: Sequence[float]) -> float:
    """Return the population's standard deviation, sqrt(sum((x - mean)^2) / n): divided by n, not by n - 1.

    The Osmosis SDK's eval mode does the same. 0.0 for one value; undefined without values: ValueError.

    >>> std([0.0, 1.0, 0.0, 1.0])
    0.5
    """
    unit = unit_of(values)
    if unit != 1.0:
        return std([value / unit for value in values]) * unit
    center = mean(values)
    deviations = [value - center for value in values]
    scale = max(map(abs, deviations))
    if scale == 0.0:
        return 0.0
    return scale * math.sqrt(math.fsum((deviation / scale) ** 2 for deviation in deviations) / len(values))


def sample_variance(values: Sequence[float]) -> float | None:
    """Return the unbiased variance, sum((x - mean)^2) / (n - 1), None for one value. Without values: ValueError.

    >>> sample_variance([0.0, 1.0, 0.0, 1.0])
    0.3333333333333333
    """
    _need_values("variance", values)
    n = len(values)
    spread = std(values)
    return None if n == 1 else held(spread * spread * n / (n - 1))


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
