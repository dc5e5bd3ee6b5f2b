"""Measure how often the printed 95% interval of a pass rate contains the truth: `python -m benchmarks.coverage`.

Each row draws its own pass rate (beta-binomial: `correlation` is the correlation between two runs of a row), and its
runs draw from that rate. The interval is the one that an eval prints. The table is in docs/explanation/statistics.md.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from random import Random

from pytest_osmosis.stats import clusters, share_interval, wilson

ROWS = (50, 100, 300)
RUNS_AND_CORRELATIONS = ((1, 0.0), (2, 0.0), (2, 0.5), (5, 0.0), (5, 0.3), (5, 0.7), (20, 0.3))
RATES = (0.1, 0.3, 0.5, 0.7, 0.9)


def chances(runs: int, rate: float, correlation: float) -> list[float]:
    """Return the chance of each number of passes in a row."""
    if correlation == 0:
        return [math.comb(runs, c) * rate**c * (1 - rate) ** (runs - c) for c in range(runs + 1)]
    concentration = 1 / correlation - 1
    a, b = rate * concentration, (1 - rate) * concentration
    return [math.comb(runs, c) * math.exp(_log_beta(c + a, runs - c + b) - _log_beta(a, b)) for c in range(runs + 1)]


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def coverage(rows: int, runs: int, rate: float, correlation: float, times: int, seed: int) -> float:
    """Return the share of evals whose interval contains the true rate; exact for one run per row."""
    if runs == 1:
        return exact(rows, rate)
    random = Random(f"{seed} {rows} {runs} {rate} {correlation}")
    weights = chances(runs, rate, correlation)
    means = [[passed / runs] for passed in range(runs + 1)]  # a row's mean gives the same interval as its runs
    held = 0
    for _ in range(times):
        interval = share_interval(clusters(random.choices(means, weights, k=rows)), n_runs=rows * runs)
        held += interval.low <= rate <= interval.high
    return held / times


def exact(rows: int, rate: float) -> float:
    """Return the coverage for one run per row, summed over every number of passes."""
    return math.fsum(
        math.comb(rows, passed) * rate**passed * (1 - rate) ** (rows - passed)
        for passed in range(rows + 1)
        if (interval := wilson(passed, rows)).low <= rate <= interval.high
    )


def table(times: int, seed: int, rows: Sequence[int] = ROWS) -> list[str]:
    """Return the lines of the Markdown table, in percent."""
    lines = [
        "| rows | runs | correlation of a row's runs | " + " | ".join(f"rate {rate}" for rate in RATES) + " |",
        "|---|---|---|" + "---|" * len(RATES),
    ]
    for n_rows in rows:
        for runs, correlation in RUNS_AND_CORRELATIONS:
            shares = [coverage(n_rows, runs, rate, correlation, times, seed) for rate in RATES]
            cells = [n_rows, runs, "" if runs == 1 else f"{correlation:g}", *(f"{100 * share:.1f}" for share in shares)]
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=4000, help="evals per cell")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for line in table(options.times, options.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
