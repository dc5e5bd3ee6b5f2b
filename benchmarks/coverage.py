"""How often the printed 95% intervals of a pass rate hold the truth: `python -m benchmarks.coverage`.

Rows are drawn with a pass rate of their own (beta-binomial: `correlation` is that of two runs of a row), runs from
their row, and the interval is the one that an eval of them prints. The table is that of docs/explanation/statistics.md.
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
    """The chance of each number of passes in a row."""
    if correlation == 0:
        return [math.comb(runs, c) * rate**c * (1 - rate) ** (runs - c) for c in range(runs + 1)]
    concentration = 1 / correlation - 1
    a, b = rate * concentration, (1 - rate) * concentration
    return [math.comb(runs, c) * math.exp(_log_beta(c + a, runs - c + b) - _log_beta(a, b)) for c in range(runs + 1)]


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def coverage(rows: int, runs: int, rate: float, correlation: float, times: int, seed: int) -> float:
    """The share of evals whose interval holds the rate that their rows were drawn with; counted for one run a row."""
    if runs == 1:
        return exact(rows, rate)
    random = Random(f"{seed} {rows} {runs} {rate} {correlation}")
    weights = chances(runs, rate, correlation)
    means = [
        [passed / runs] for passed in range(runs + 1)
    ]  # a row's mean stands for its runs: the interval is the same
    held = 0
    for _ in range(times):
        interval = share_interval(clusters(random.choices(means, weights, k=rows)), n_runs=rows * runs)
        held += interval.low <= rate <= interval.high
    return held / times


def exact(rows: int, rate: float) -> float:
    """The coverage for one run a row, over every number of passes."""
    return math.fsum(
        math.comb(rows, passed) * rate**passed * (1 - rate) ** (rows - passed)
        for passed in range(rows + 1)
        if (interval := wilson(passed, rows)).low <= rate <= interval.high
    )


def table(times: int, seed: int, rows: Sequence[int] = ROWS) -> list[str]:
    """The table in Markdown, in percent."""
    lines = [
        "| rows | runs | correlation of a row's runs | " + " | ".join(f"rate {rate}" for rate in RATES) + " |",
        "|---|---|---|" + "---|" * len(RATES),
    ]
    for n_rows in rows:
        for runs, correlation in RUNS_AND_CORRELATIONS:
            found = [coverage(n_rows, runs, rate, correlation, times, seed) for rate in RATES]
            of_runs = "" if runs == 1 else f"{correlation:g}"
            lines.append(f"| {n_rows} | {runs} | {of_runs} | " + " | ".join(f"{100 * one:.1f}" for one in found) + " |")
    return lines


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--times", type=int, default=4000, help="evals a cell")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    for line in table(given.times, given.seed):
        print(line, flush=True)


if __name__ == "__main__":
    main()
