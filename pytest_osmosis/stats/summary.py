"""The summary of one reward function's scores, with pass@k and pass^k. Undefined values are None."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import Struct

from pytest_osmosis.stats.intervals import Interval, gaffke, score_range

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
    n, spread = len(values), std(values)
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


class Clusters(Struct, frozen=True):
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
        parts = ((found.se, unit, 1.0), (found.within, unit, unit), (found.between, unit, unit))
        scaled = (None if value is None else held(value * one * other) for value, one, other in parts)
        return Clusters(found.n_rows, found.n_runs, found.mean * unit, *scaled)
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


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the chance that at least one of k runs passes, if c of n passed: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1): the share of the subsets of k
    runs that contain a pass. Counted in integers and divided once, so exact to the last digit.
    Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 3), pass_at_k(5, 2, 5)
    (0.4, 0.9, 1.0)
    """
    _need_counts("pass@k", n, c, k)
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - c, k)) / subsets


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return the chance that all of k runs pass, if c of n passed: C(c, k) / C(n, k).

    pass^k of tau-bench (Yao et al. 2024, arXiv 2406.12045): the share of the subsets of k runs that are all
    passes. Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_hat_k(5, 4, 2), pass_hat_k(5, 4, 5), pass_hat_k(4, 4, 4)
    (0.6, 0.0, 1.0)
    """
    _need_counts("pass^k", n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def ks_for(n: int) -> tuple[int, ...]:
    """Return the reported k for n runs a row, sorted: 1, the powers of two, 3, 5, 10 and n, up to n.

    Older versions of the Osmosis SDK report 1, 3, 5 and 10, newer ones powers of two. Empty for n = 1, because
    pass@1 is the pass rate.

    >>> ks_for(1), ks_for(5), ks_for(12)
    ((), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 8, 10, 12))
    """
    if n < 2:
        return ()
    powers_of_two = {1 << exponent for exponent in range(n.bit_length())}
    return tuple(sorted(k for k in powers_of_two | {3, 5, 10, n} if k <= n))


def _need_counts(name: str, n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"{name}: c = {c} of n = {n} runs cannot have passed; c must lie in 0..n")
    if not 1 <= k <= n:
        raise ValueError(f"{name} is undefined for k = {k} with n = {n} runs; k must lie in 1..n")


PERCENTILES = (5, 25, 75, 95)


class RunScore(NamedTuple):
    """The score of one run, or what counts as its score, and whether it passed; not if it is not `measured`."""

    score: float
    passed: bool
    measured: bool = True


class Summary(Struct, frozen=True):
    """Statistics of the scores that one reward function gave. Without runs every value is None."""

    n_rows: int
    """The number of rows with runs."""
    n_runs: int
    """The number of runs, without those that were removed or never ran."""
    n_measured: int
    """The number of runs that count as an answer."""
    mean: float | None = None
    """The mean score; a run without a score counts as the lower of 0.0 and the lowest score."""
    std: float | None = None
    """The standard deviation of the population."""
    min: float | None = None
    """The lowest score."""
    max: float | None = None
    """The highest score."""
    median: float | None = None
    """The median score."""
    pass_rate: float | None = None
    """The share of runs that passed, from 0 to 1."""
    pass_at: dict[int, float] = {}
    """pass@k by k: the mean over the rows with at least k measured runs. Empty for n = 1."""
    pass_hat: dict[int, float] = {}
    """pass^k by k, from k = 2."""
    percentiles: dict[int, float] = {}
    """The 5th, 25th, 75th and 95th percentile of the scores."""
    se: float | None = None
    """The standard error of the mean, with rows as units, None for one row."""
    within: float | None = None
    """The variance of runs around the mean of their row, None if every row has one run."""
    between: float | None = None
    """The variance of rows around the mean, None if every row has one run."""
    mean_interval: Interval | None = None
    """The 95% interval of the mean."""
    pass_rate_interval: Interval | None = None
    """The 95% interval of the pass rate."""
    n_mixed: int = 0
    """The number of rows of which some runs passed and some did not."""


def summarize(rows: Mapping[int, Sequence[RunScore]], n: int, declared: tuple[float, float] = (0.0, 1.0)) -> Summary:
    """Summarize the runs of each row, by row index. The config asks for n runs per row, scores lie in `declared`.

    `pass_hat` starts at k = 2, because it equals `pass_at` at k = 1.

    >>> summary = summarize({0: [RunScore(1.0, True), RunScore(0.0, False)], 1: [RunScore(1.0, True)] * 2}, n=2)
    >>> summary.mean, summary.pass_rate, summary.pass_at, summary.pass_hat
    (0.75, 0.75, {1: 0.75, 2: 1.0}, {2: 0.5})
    """
    runs = [run for row in rows.values() for run in row]
    if not runs:
        return Summary(n_rows=0, n_runs=0, n_measured=0)
    scores = sorted(run.score for run in runs)
    counts = Counter(_measured_and_passed(row) for row in rows.values())
    ks = ks_for(n)
    scores_by_row = [[run.score for run in row] for row in rows.values() if row]
    passes_by_row = [[float(run.passed) for run in row] for row in rows.values() if row]
    score_clusters = clusters(scores_by_row)
    score_interval = gaffke(scores_by_row, *score_range(scores, declared))
    return Summary(
        n_rows=len(scores_by_row),
        n_runs=len(runs),
        n_measured=sum(run.measured for run in runs),
        mean=mean(scores),
        std=std(scores),
        min=scores[0],
        max=scores[-1],
        median=percentile(scores, 50),
        pass_rate=sum(run.passed for run in runs) / len(runs),
        pass_at=_over_rows(pass_at_k, counts, ks),
        pass_hat=_over_rows(pass_hat_k, counts, [k for k in ks if k > 1]),
        percentiles={p: percentile(scores, p) for p in PERCENTILES},
        se=score_clusters.se,
        within=score_clusters.within,
        between=score_clusters.between,
        mean_interval=score_interval,
        pass_rate_interval=score_interval if passes_by_row == scores_by_row else gaffke(passes_by_row),
        n_mixed=sum(times for (measured, passed), times in counts.items() if 0 < passed < measured),
    )


def _measured_and_passed(row: Sequence[RunScore]) -> tuple[int, int]:
    measured = [run for run in row if run.measured]
    return len(measured), sum(run.passed for run in measured)


def _over_rows(
    estimate: Callable[[int, int, int], float], counts: Mapping[tuple[int, int], int], ks: Iterable[int]
) -> dict[int, float]:
    """Return the mean estimate over the rows with at least k runs, by k. `counts` maps (n, c) to a number of rows."""
    means = {}
    for k in ks:
        n_rows = sum(times for (n, _), times in counts.items() if n >= k)
        if n_rows:
            total = math.fsum(times * estimate(n, c, k) for (n, c), times in counts.items() if n >= k)
            means[k] = total / n_rows
    return means
