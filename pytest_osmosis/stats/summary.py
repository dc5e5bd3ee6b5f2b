"""The summary of one reward function's scores. Undefined values are None."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from pytest_osmosis.stats.clusters import clusters
from pytest_osmosis.stats.intervals import Interval, gaffke, score_range
from pytest_osmosis.stats.moments import mean, percentile, std
from pytest_osmosis.stats.passes import ks_for, pass_at_k, pass_hat_k

PERCENTILES = (5, 25, 75, 95)


class RunScore(NamedTuple):
    """The score of one run, and whether it passed. A run that is not `measured` has score 0.0 and did not pass."""

    score: float
    passed: bool
    measured: bool = True


@dataclass(frozen=True, slots=True)
class Summary:
    """Statistics of the scores that one reward function gave. Without runs every value is None.

    `std` is the population's. `pass_rate` is the share of runs that passed. `pass_at` and `pass_hat` map k to the mean
    over the rows with at least k measured runs. They lack a k that no row reaches, and are empty for n = 1. `n_rows`
    counts the rows with runs, and `n_mixed` the rows with measured runs of which some passed and some did not. `se`,
    `within` and `between` are those of `Clusters`.
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
    percentiles: dict[int, float] = field(default_factory=dict)
    se: float | None = None
    within: float | None = None
    between: float | None = None
    mean_interval: Interval | None = None
    pass_rate_interval: Interval | None = None
    n_mixed: int = 0


def summarize(rows: Mapping[int, Sequence[RunScore]], n: int) -> Summary:
    """Summarize the runs of each row, by row index. The config asks for n runs per row.

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
    score_interval = gaffke(scores_by_row, *score_range(scores))
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
