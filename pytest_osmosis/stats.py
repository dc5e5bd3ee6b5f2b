"""Plain numbers in, plain numbers out: what an eval run's scores add up to.

Every formula names its source and its undefined case; where a value is undefined a function raises
`ValueError`, and `Summary` holds None. Scores are finite floats. Nothing here knows files or thresholds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Attempt(NamedTuple):
    """One run of a row as statistics see it. One that is not `measured` comes as score 0.0, not passed."""

    score: float
    passed: bool
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """What all attempts of one reward function add up to. Without attempts every value is None.

    `std` is the population's. `pass_rate` is the share of attempts that passed. `pass_at` and `pass_hat` map
    k to the mean over the rows with at least k measured attempts; a k that no row reaches is left out, and
    both are empty for n = 1. `n_rows` counts the rows with an attempt.
    """

    n_rows: int
    n_runs: int
    n_measured: int
    mean: float | None = None
    std: float | None = None
    min: float | None = None
    max: float | None = None
    median: float | None = None
    pass_rate: float | None = None
    pass_at: dict[int, float] = field(default_factory=dict)
    pass_hat: dict[int, float] = field(default_factory=dict)


def summarize(rows: Mapping[int, Sequence[Attempt]], n: int) -> Summary:
    """The summary of the attempts at each row, by row index, where n attempts a row were asked for.

    Rows without attempts are left out. `pass_hat` starts at k = 2: at k = 1 it is `pass_at`.

    >>> summary = summarize({0: [Attempt(1.0, True), Attempt(0.0, False)], 1: [Attempt(1.0, True)] * 2}, n=2)
    >>> summary.mean, summary.pass_rate, summary.pass_at, summary.pass_hat
    (0.75, 0.75, {1: 0.75, 2: 1.0}, {2: 0.5})
    """
    attempts = [attempt for row in rows.values() for attempt in row]
    n_rows = sum(1 for row in rows.values() if row)
    n_measured = sum(attempt.measured for attempt in attempts)
    if not attempts:
        return Summary(n_rows=n_rows, n_runs=0, n_measured=0)
    scores = [attempt.score for attempt in attempts]
    counts = Counter(_measured_and_passed(row) for row in rows.values())
    ks = ks_for(n)
    return Summary(
        n_rows=n_rows,
        n_runs=len(attempts),
        n_measured=n_measured,
        mean=mean(scores),
        std=std(scores),
        min=min(scores),
        max=max(scores),
        median=median(scores),
        pass_rate=sum(attempt.passed for attempt in attempts) / len(attempts),
        pass_at=_over_rows(pass_at_k, counts, ks),
        pass_hat=_over_rows(pass_hat_k, counts, [k for k in ks if k > 1]),
    )


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean, sum(x) / n, summed without loss (`math.fsum`).

    Undefined without values: ValueError.

    >>> mean([0.1, 0.2, 0.6])
    0.3
    """
    _need_values("mean", values)
    try:
        return math.fsum(values) / len(values)
    except OverflowError:  # the sum is beyond a float, the mean is not
        return math.fsum(value / len(values) for value in values)


def std(values: Sequence[float]) -> float:
    """The population's standard deviation, sqrt(sum((x - mean)^2) / n): divided by n, not by n - 1.

    As in the Osmosis SDK's eval mode. One value gives 0.0; undefined without values: ValueError.

    >>> std([0.0, 1.0, 0.0, 1.0])
    0.5
    """
    center = mean(values)
    deviations = [value - center for value in values]
    scale = max(map(abs, deviations))
    if scale == 0.0:
        return 0.0
    return scale * math.sqrt(math.fsum((deviation / scale) ** 2 for deviation in deviations) / len(values))


def median(values: Sequence[float]) -> float:
    """The middle value; of an even number the mean of the middle two. Undefined without values: ValueError.

    >>> median([3.0, 1.0, 2.0]), median([4.0, 1.0])
    (2.0, 2.5)
    """
    _need_values("median", values)
    ordered = sorted(values)
    upper = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[upper]
    return mean(ordered[upper - 1 : upper + 1])


def pass_at_k(n: int, c: int, k: int) -> float:
    """The chance that at least one of k attempts passes, from n of which c passed: 1 - C(n-c, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (arXiv 2107.03374, equation 1): the share of the subsets of k
    attempts that hold a pass. Counted in whole numbers and divided once, so exact to the last digit.
    Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_at_k(5, 2, 1), pass_at_k(5, 2, 3), pass_at_k(5, 2, 5)
    (0.4, 0.9, 1.0)
    """
    _need_counts("pass@k", n, c, k)
    subsets = math.comb(n, k)
    return (subsets - math.comb(n - c, k)) / subsets


def pass_hat_k(n: int, c: int, k: int) -> float:
    """The chance that all of k attempts pass, from n of which c passed: C(c, k) / C(n, k).

    pass^k of tau-bench (Yao et al. 2024, arXiv 2406.12045): the share of the subsets of k attempts that hold
    nothing but passes. Undefined for k > n, k < 1 and c outside 0..n: ValueError.

    >>> pass_hat_k(5, 4, 2), pass_hat_k(5, 4, 5), pass_hat_k(4, 4, 4)
    (0.6, 0.0, 1.0)
    """
    _need_counts("pass^k", n, c, k)
    return math.comb(c, k) / math.comb(n, k)


def ks_for(n: int) -> tuple[int, ...]:
    """The k reported for n attempts a row, sorted: of 1, the powers of two, 3, 5, 10 and n those up to n.

    The union of what the two generations of the Osmosis SDK report (1, 3, 5, 10; powers of two) and n itself.
    Empty for n = 1, where pass@1 is the pass rate.

    >>> ks_for(1), ks_for(5), ks_for(12)
    ((), (1, 2, 3, 4, 5), (1, 2, 3, 4, 5, 8, 10, 12))
    """
    if n < 2:
        return ()
    powers_of_two = {1 << exponent for exponent in range(n.bit_length())}
    return tuple(sorted(k for k in powers_of_two | {3, 5, 10, n} if k <= n))


def _measured_and_passed(row: Sequence[Attempt]) -> tuple[int, int]:
    measured = [attempt for attempt in row if attempt.measured]
    return len(measured), sum(attempt.passed for attempt in measured)


def _over_rows(
    estimate: Callable[[int, int, int], float], counts: Mapping[tuple[int, int], int], ks: Iterable[int]
) -> dict[int, float]:
    """k -> the mean of the estimate over the rows with k attempts; `counts` says how many rows are (n, c)."""
    means = {}
    for k in ks:
        n_rows = sum(times for (n, _), times in counts.items() if n >= k)
        if n_rows:
            total = math.fsum(times * estimate(n, c, k) for (n, c), times in counts.items() if n >= k)
            means[k] = total / n_rows
    return means


def _need_values(what: str, values: Sequence[float]) -> None:
    if not values:
        raise ValueError(f"the {what} of no values is undefined")


def _need_counts(what: str, n: int, c: int, k: int) -> None:
    if not 0 <= c <= n:
        raise ValueError(f"{what}: of n = {n} attempts c = {c} cannot have passed; c must lie in 0..n")
    if not 1 <= k <= n:
        raise ValueError(f"{what} is undefined for k = {k} with n = {n} attempts; k must lie in 1..n")
