"""Measure how often a printed 95% interval contains the truth: `python -m benchmarks.coverage`.

Each row draws its own chance to pass, and its runs draw from that. The correlation is that between two runs of a row.
Chances spread evenly follow a beta distribution. In the harder case a few rows never pass, and all others have the same
chance: a small eval may not have seen such a row. Where rows have different numbers of runs, these say nothing about
the chances. docs/explanation/statistics.md sums the tables up.
"""

from __future__ import annotations

import argparse
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Literal, NamedTuple

from pytest_osmosis.stats import compare, gaffke, mean, pass_at_k, pass_hat_k
from pytest_osmosis.stats.intervals import LEVEL, RowGroup, lower_tail

Spread = Literal["even", "some never pass"]

ROWS = (20, 100, 300)
RATES = (0.5, 0.8, 0.9, 0.95, 0.99)


class Kind(NamedTuple):
    """Evals with `runs` runs per row."""

    runs: int
    correlation: float = 0.0
    spread: Spread = "even"


KINDS = (
    Kind(1), Kind(5), Kind(5, 0.3), Kind(5, 0.7), Kind(20), Kind(20, 0.3), Kind(20, 0.6), Kind(20, 0.9),
    Kind(5, 0.3, "some never pass"), Kind(20, 0.1, "some never pass"), Kind(20, 0.3, "some never pass"),
    Kind(20, 0.6, "some never pass"),
)  # fmt: skip


class Lengths(NamedTuple):
    """Evals whose rows have different numbers of runs. `draw` draws the number of one of them, by its index."""

    name: str
    draw: Callable[[Random, int], int]


LENGTHS = (
    Lengths("1, 2 or 20", lambda random, _: random.choice((1, 2, 20))),
    Lengths("half 1, half 20", lambda _, row: (20, 1)[row % 2]),
    Lengths("20, any share removed", lambda random, _: random.randint(1, 20)),
)
UNEQUAL_ROWS = (5, 10, 20, 50, 100)
UNEQUAL_RATES = (*RATES, 0.999)
UNEQUAL_KINDS = (
    Kind(20), Kind(20, 0.3), Kind(20, 0.9), Kind(20, 0.3, "some never pass"), Kind(20, 0.9, "some never pass"),
)  # fmt: skip
"""Kinds of rows, whatever the number of their runs."""
RESAMPLES = 199
Estimate = Callable[[int, int, int], float]


class Scores(NamedTuple):
    """Scores with a known mean. `draw` draws that of a run."""

    name: str
    draw: Callable[[Random], float]
    mean: float


SCORES = (
    Scores("beta(8, 2)", lambda random: random.betavariate(8, 2), 0.8),
    Scores("1, but one in ten uniform in 0..1", lambda random: random.random() if random.random() < 0.1 else 1.0, 0.95),
    Scores(
        "beta(80, 20), but 3 in 100 are 0",
        lambda random: 0.0 if random.random() < 0.03 else random.betavariate(80, 20),
        0.97 * 0.8,
    ),
)


class Change(NamedTuple):
    """A change between two evals. `rates` draws the chances of a row to pass, old and new."""

    name: str
    rates: Callable[[Random], tuple[float, float]]
    difference: float


def _nothing(random: Random) -> tuple[float, float]:
    rate = random.betavariate(0.72, 0.08)
    return rate, rate


def _all_worse(random: Random) -> tuple[float, float]:
    rate = random.betavariate(0.72, 0.08)
    return rate, 0.95 * rate


def _some_break(random: Random) -> tuple[float, float]:
    return 0.98, 0.98 if random.random() >= 0.02 else 0.0


CHANGES = (
    Change("none", _nothing, 0.0),
    Change("each row passes 5% less often", _all_worse, -0.045),
    Change("2 in 100 rows never pass any more", _some_break, -0.0196),
)


def chances(kind: Kind, rate: float) -> list[float]:
    """Return the chance of each number of passes in a row."""
    runs, correlation = kind.runs, kind.correlation
    if correlation == 0:
        return _binomial(runs, rate)
    if kind.spread == "some never pass":
        odds = correlation * (1 - rate) / rate
        never = odds / (1 + odds)
        others = _binomial(runs, rate / (1 - never))
        return [never * (passed == 0) + (1 - never) * chance for passed, chance in enumerate(others)]
    a, b = rate * (1 / correlation - 1), (1 - rate) * (1 / correlation - 1)
    return [math.comb(runs, c) * math.exp(_log_beta(c + a, runs - c + b) - _log_beta(a, b)) for c in range(runs + 1)]


def _binomial(runs: int, rate: float) -> list[float]:
    return [math.comb(runs, c) * rate**c * (1 - rate) ** (runs - c) for c in range(runs + 1)]


def _log_beta(a: float, b: float) -> float:
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def contains(rows: Counter[float], truth: float) -> bool:
    """Return whether the interval of the mean of rows, values in 0..1, contains `truth`.

    The same as computing the interval, but without a search for its ends.
    """
    return _contains([RowGroup(value, 1, n_rows) for value, n_rows in rows.items()], truth)


def _contains(groups: Sequence[RowGroup], truth: float) -> bool:
    """Return whether the interval contains `truth`, which its end on the other side of the mean cannot exclude."""
    total = math.fsum(group.n_rows * group.total for group in groups)
    n_runs = math.fsum(group.n_rows * group.n_runs for group in groups)
    least = (1 - LEVEL) / 2
    if truth <= total / n_runs:
        return total == 0 or lower_tail(truth, groups, 0.0) >= least
    mirrored = [group._replace(total=-group.total) for group in groups]
    return total == n_runs or lower_tail(-truth, mirrored, -1.0) >= least


def rate_coverage(n_rows: int, kind: Kind, rate: float, times: int, seed: int) -> float:
    """Return the share of evals whose interval of the pass rate contains the true rate; exact for one run per row."""
    weights = chances(kind, rate)
    values = [passed / kind.runs for passed in range(kind.runs + 1)]
    if kind.runs == 1:
        shares = {passed: _binomial(n_rows, rate)[passed] for passed in range(n_rows + 1)}
        held = (
            share for passed, share in shares.items() if contains(+Counter({1.0: passed, 0.0: n_rows - passed}), rate)
        )
        return math.fsum(held)
    random = Random(f"{seed} {n_rows} {kind} {rate}")
    return sum(contains(Counter(random.choices(values, weights, k=n_rows)), rate) for _ in range(times)) / times


def estimate_coverage(n_rows: int, kind: Kind, rate: float, estimate: Estimate, k: int, times: int, seed: int) -> float:
    """Return the share of evals whose interval of pass@k or pass^k contains the truth."""
    weights = chances(kind, rate)
    values = [estimate(kind.runs, passed, k) for passed in range(kind.runs + 1)]
    truth = math.fsum(weight * value for weight, value in zip(weights, values, strict=True))
    random = Random(f"{seed} {n_rows} {kind} {rate} {k}")
    return sum(contains(Counter(random.choices(values, weights, k=n_rows)), truth) for _ in range(times)) / times


def unequal_rows(n_rows: int, lengths: Lengths, kind: Kind, rate: float, random: Random) -> list[tuple[int, int]]:
    """Return the number of passes and of runs of each row."""
    rows = []
    for row in range(n_rows):
        n_runs, chance = lengths.draw(random, row), _chance(kind, rate, random)
        rows.append((sum(random.random() < chance for _ in range(n_runs)), n_runs))
    return rows


def _chance(kind: Kind, rate: float, random: Random) -> float:
    """Draw the chance of a row to pass."""
    if kind.correlation == 0:
        return rate
    if kind.spread == "some never pass":
        odds = kind.correlation * (1 - rate) / rate
        return 0.0 if random.random() < odds / (1 + odds) else rate * (1 + odds)
    return random.betavariate(rate * (1 / kind.correlation - 1), (1 - rate) * (1 / kind.correlation - 1))


def unequal_coverage(n_rows: int, lengths: Lengths, kind: Kind, rate: float, times: int, seed: int) -> float:
    """Return the share of evals, with different numbers of runs, whose interval of the pass rate contains the rate."""
    random = Random(f"{seed} {n_rows} {lengths.name} {kind} {rate}")
    evals = Counter(tuple(sorted(unequal_rows(n_rows, lengths, kind, rate, random))) for _ in range(times))
    held = 0
    for rows, n_times in evals.items():
        groups = [RowGroup(passed, n_runs, n) for (passed, n_runs), n in Counter(rows).items()]
        held += n_times * _contains(groups, rate)
    return held / times


def bootstrap_t(rows: Sequence[tuple[int, int]], random: Random) -> tuple[float, float] | None:
    """Return the interval of the pass rate by a cluster bootstrap-t, cut to 0..1, None if it has no standard error.

    Rows are drawn with replacement, and the t of each sample is taken around the rate of all (Efron and Tibshirani
    1993, An Introduction to the Bootstrap, section 12.5). A sample without a standard error has an infinite t.
    """
    rate, se = _estimate(rows)
    if not se:
        return None
    ts = []
    for _ in range(RESAMPLES):
        value, its_se = _estimate(random.choices(rows, k=len(rows)))
        off = value - rate
        ts.append(off / its_se if its_se else math.copysign(math.inf, off) if abs(off) > 1e-12 else 0.0)
    ts.sort()
    cut = round((1 - LEVEL) / 2 * (RESAMPLES + 1)) - 1
    return max(0.0, rate - ts[-1 - cut] * se), min(1.0, rate - ts[cut] * se)


def _estimate(rows: Sequence[tuple[int, int]]) -> tuple[float, float]:
    """Return the pass rate and its standard error, with rows as units; 0.0 for rows that all have this rate."""
    n_runs = sum(n for _, n in rows)
    rate = sum(passed for passed, _ in rows) / n_runs
    squares = sum((passed - rate * n) ** 2 for passed, n in rows)
    return rate, math.sqrt(squares * len(rows) / (len(rows) - 1)) / n_runs if squares > 1e-18 else 0.0


class Widths(NamedTuple):
    """The mean widths of intervals and of the bootstrap-t, and how often the latter contains the truth."""

    ours: float
    bootstrap: float
    bootstrap_coverage: float


def unequal_widths(n_rows: int, lengths: Lengths, times: int, seed: int) -> Widths:
    """Return mean widths over all kinds of rows and rates, of evals that have a bootstrap-t."""
    random = Random(f"{seed} {n_rows} {lengths.name}")
    ours, theirs, held = [], [], 0
    for kind, rate in itertools.product(UNEQUAL_KINDS, UNEQUAL_RATES):
        for _ in range(times):
            rows = unequal_rows(n_rows, lengths, kind, rate, random)
            ends = bootstrap_t(rows, random)
            if ends is None:
                continue
            interval = gaffke([[1.0] * passed + [0.0] * (n_runs - passed) for passed, n_runs in rows])
            ours.append(interval.high - interval.low)
            theirs.append(ends[1] - ends[0])
            held += ends[0] <= rate <= ends[1]
    return Widths(mean(ours), mean(theirs), held / len(ours))


def mean_coverage(n_rows: int, scores: Scores, times: int, seed: int) -> float:
    """Return the share of evals, one run per row, whose interval of the mean score contains the true mean."""
    random = Random(f"{seed} {n_rows} {scores.name}")
    drawn = (Counter(scores.draw(random) for _ in range(n_rows)) for _ in range(times))
    return sum(contains(rows, scores.mean) for rows in drawn) / times


def difference_coverage(n_rows: int, runs: int, change: Change, times: int, seed: int) -> float:
    """Return the share of comparisons whose interval contains the true difference."""
    random = Random(f"{seed} {n_rows} {runs} {change.name}")

    def share(rate: float) -> float:
        return sum(random.random() < rate for _ in range(runs)) / runs

    held = 0
    for _ in range(times):
        rates = [change.rates(random) for _ in range(n_rows)]
        interval = compare([share(new) for _, new in rates], [share(old) for old, _ in rates]).interval
        held += interval.low <= change.difference <= interval.high
    return held / times


def rate_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of pass rates, in percent."""
    yield from _head(["rows", "runs", "correlation", "chances of the rows", *(f"rate {rate}" for rate in RATES)])
    for n_rows in ROWS:
        for kind in KINDS:
            held = [rate_coverage(n_rows, kind, rate, times, seed) for rate in RATES]
            cells = ["", ""] if kind.runs == 1 else [f"{kind.correlation:g}", kind.spread]
            yield _line([str(n_rows), str(kind.runs), *cells, *map(_percent, held)])


def unequal_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of pass rates where numbers of runs differ, in percent.

    Each cell is the lower one of both ways in which the chances of rows spread.
    """
    yield from _head(["rows", "runs", "correlation", *(f"rate {rate}" for rate in UNEQUAL_RATES)])
    for n_rows, lengths in itertools.product(UNEQUAL_ROWS, LENGTHS):
        for correlation in sorted({kind.correlation for kind in UNEQUAL_KINDS}):
            kinds = [kind for kind in UNEQUAL_KINDS if kind.correlation == correlation]
            held = [
                min(unequal_coverage(n_rows, lengths, kind, rate, times, seed) for kind in kinds)
                for rate in UNEQUAL_RATES
            ]
            yield _line([str(n_rows), lengths.name, f"{correlation:g}", *map(_percent, held)])


def width_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of mean widths, next to a cluster bootstrap-t and its coverage."""
    yield from _head(["rows", "runs", "mean width", "bootstrap-t", "ratio", "coverage of the bootstrap-t"])
    for n_rows, lengths in itertools.product(UNEQUAL_ROWS, LENGTHS):
        ours, theirs, held = unequal_widths(n_rows, lengths, times, seed)
        cells = [str(n_rows), lengths.name, f"{ours:.3f}", f"{theirs:.3f}", f"{ours / theirs:.2f}", _percent(held)]
        yield _line(cells)


def estimate_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of pass@3 and pass^3, in percent."""
    cases = [(n_rows, rate) for n_rows in (20, 100) for rate in (0.5, 0.9)]
    yield from _head(["5 runs, correlation 0.3", *(f"{n_rows} rows, rate {rate}" for n_rows, rate in cases)])
    for name, estimate in (("pass@3", pass_at_k), ("pass^3", pass_hat_k)):
        for kind in (Kind(5, 0.3), Kind(5, 0.3, "some never pass")):
            held = [estimate_coverage(n_rows, kind, rate, estimate, 3, times, seed) for n_rows, rate in cases]
            yield _line([f"{name}, {kind.spread}", *map(_percent, held)])


def mean_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of mean scores, in percent."""
    yield from _head(["scores", *(f"{n_rows} rows" for n_rows in ROWS)])
    for scores in SCORES:
        yield _line([scores.name, *(_percent(mean_coverage(n_rows, scores, times, seed)) for n_rows in ROWS)])


def difference_table(times: int, seed: int) -> Iterator[str]:
    """Yield the lines of the Markdown table of differences, in percent."""
    cases = [(n_rows, runs) for n_rows in ROWS for runs in (1, 5)]
    yield from _head(["change", *(f"{n_rows} x {runs}" for n_rows, runs in cases)])
    for change in CHANGES:
        held = [difference_coverage(n_rows, runs, change, times, seed) for n_rows, runs in cases]
        yield _line([change.name, *map(_percent, held)])


def _head(titles: Sequence[str]) -> list[str]:
    return [_line(titles), "|---" * len(titles) + "|"]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _percent(share: float) -> str:
    return f"{100 * share:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--times", type=int, default=1000, help="evals per cell; a quarter as many for means and differences"
    )
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    for table, times in (
        (rate_table, options.times),
        (unequal_table, options.times),
        (width_table, max(1, options.times // 50)),
        (estimate_table, options.times),
        (mean_table, options.times // 4),
        (difference_table, options.times // 4),
    ):
        for line in table(times, options.seed):
            print(line, flush=True)
        print()


if __name__ == "__main__":
    main()
