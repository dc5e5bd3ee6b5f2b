"""Rows as clusters: the runs of a row resemble one another, so a standard error counts rows, not runs.

Treating rows x n runs as independent makes intervals up to sqrt(n) times too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain

from pytest_osmosis.stats.moments import held, mean, sample_variance, unit_of


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
