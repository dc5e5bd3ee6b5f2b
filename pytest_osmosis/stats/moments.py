"""Mean, spread and percentiles of a list of values, and of rows with several runs.

The runs of a row resemble one another, so a standard error counts rows, not runs: treating rows x n runs as independent
makes intervals up to sqrt(n) times too narrow.
Values are finite floats. Sums are exact; they overflow or underflow only if the result does. A statistic that no float
can hold is None.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

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


@dataclass(frozen=True, slots=True)
class Clusters:
    """The mean of all runs, and their variances within rows and between rows.

    `se` is the standard error of the mean over other rows of the same kind, None for one row. `within` is the variance
    of runs around the mean of their row, and `between` that of rows around the mean, at least 0, from a one-way
    analysis of variance (Searle, Casella and McCulloch 1992, section 3.6). Both are None if every row has one run, and
    `between` also for a single row. What no float can hold is None too.
    """

    n_rows: int
    n_runs: int
    mean: float
    se: float | None = None
    within: float | None = None
    between: float | None = None


def clusters(rows: Sequence[Sequence[float]]) -> Clusters:
    """Return the mean and the variances of the runs of all rows. Undefined without any run: ValueError.

    The standard error is Miller's (2024, arXiv 2411.00640, section 2.2), sqrt(sum over rows of (sum of the
    row's deviations)^2) / N, with the small-sample factor R / (R - 1); for rows of equal length that is the standard
    error of the row means.

    >>> runs = clusters([[1, 1, 1, 1], [1, 0, 1, 0], [0, 0, 0, 0], [1, 1, 0, 1]])
    >>> round(runs.se, 6), round(runs.within, 6), round(runs.between, 6)
    (0.213478, 0.145833, 0.145833)
    """
    rows = [row for row in rows if row]
    unit = unit_of(chain.from_iterable(rows))
    if unit != 1.0:
        found = clusters([[value / unit for value in row] for row in rows])
        se, within, between = found.se, found.within, found.between
        return replace(
            found,
            mean=found.mean * unit,
            se=None if se is None else held(se * unit),
            within=None if within is None else held(within * unit * unit),
            between=None if between is None else held(between * unit * unit),
        )
    n_rows, n_runs = len(rows), sum(map(len, rows))
    center = mean([value for row in rows for value in row])
    sums = [math.fsum(value - center for value in row) for row in rows]
    within = between = None
    if n_runs > n_rows:
        within = math.fsum((len(row) - 1) * (sample_variance(row) or 0.0) for row in rows) / (n_runs - n_rows)
    if n_rows == 1:
        return Clusters(n_rows, n_runs, center, None, within, None)
    se = math.sqrt(math.fsum(total * total for total in sums) * n_rows / (n_rows - 1)) / n_runs
    if within is not None:
        around = math.fsum(total * total / len(row) for total, row in zip(sums, rows, strict=True)) / (n_rows - 1)
        size = (n_runs - sum(len(row) ** 2 for row in rows) / n_runs) / (n_rows - 1)
        between = max(0.0, (around - within) / size)
    return Clusters(n_rows, n_runs, center, se, within, between)


def effective_n(rows: Clusters, n_runs: int | None = None) -> float:
    """Return the number of independent runs that would estimate a share as precisely: p (1 - p) / se^2.

    Source: Kish 1965, Survey Sampling, section 8.2. It lies between the number of rows and the number of runs. If all
    runs are equal, it is the number of rows. `n_runs` is the number of runs if each value is made from several.
    """
    most = n_runs or rows.n_runs
    if rows.n_rows == most:
        return most
    spread = rows.mean * (1 - rows.mean)
    if rows.se is None or spread <= 0:
        return rows.n_rows
    return min(max(spread / rows.se**2, rows.n_rows), most) if rows.se else most
