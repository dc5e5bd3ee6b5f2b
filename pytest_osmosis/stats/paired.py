"""Paired tests of two evals over the same rows.

The runs of a row are averaged first. Rows are compared one by one, because a hard row is hard for both evals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from random import Random

from pytest_osmosis.stats.distributions import normal_quantile
from pytest_osmosis.stats.intervals import LEVEL, Interval, student_t
from pytest_osmosis.stats.moments import mean, sample_variance

DRAWS = 20_000
MAX_EXACT_BITS = 20_000_000  # the largest integer in which sign assignments are counted: a quarter of a second
MAX_DENOMINATOR = 1_000_000
BLOCK = 8  # the number of rows whose signs are drawn together, as the bits of one byte


@dataclass(frozen=True, slots=True)
class Paired:
    """The result of comparing the same rows in two evals.

    `difference` is the mean of new minus old over `n_rows` rows. `better` rows rose, and `worse` rows fell. `se` and
    `interval` are the difference's standard error and interval, None if all rows have the same difference. `p` is the
    two-sided chance, by `test`, of a difference at least as large if new and old are alike.
    """

    n_rows: int
    better: int
    worse: int
    difference: float
    se: float | None
    interval: Interval | None
    p: float
    test: str


def compare(new: Sequence[float], old: Sequence[float], seed: int = 0) -> Paired:
    """Compare two evals by the value of each row (the mean of its runs), in the same order.

    If every value is 0 or 1 (one run per row, failed or passed), this is McNemar's exact test with Bonett and Price's
    interval. Otherwise it is a sign-flip permutation test with Student's t. `seed` is used if there are too many
    permutations to count.
    Undefined without rows and for lists of different lengths: ValueError.

    >>> result = compare([1, 1, 0, 1, 0, 1, 1, 0, 1, 1], [1, 0, 0, 1, 0, 0, 1, 1, 0, 1])
    >>> result.better, result.worse, round(result.difference, 9), result.p, result.test
    (3, 1, 0.2, 0.625, 'McNemar, exact')
    """
    if len(new) != len(old):
        raise ValueError(f"{len(new)} rows cannot be paired with {len(old)}")
    differences = [float(a - b) for a, b in zip(new, old, strict=True)]
    center = mean(differences)
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    variance = sample_variance(differences)
    se = math.sqrt(variance / len(differences)) if variance else None
    if all(value in (0, 1) for value in (*new, *old)):
        interval: Interval | None = bonett_price(better, worse, len(differences))
        p, test = mcnemar(better, worse), "McNemar, exact"
    else:
        interval = student_t(differences)
        p, test = sign_flip(differences, seed)
    return Paired(len(differences), better, worse, center, se, interval, p, test)


def mcnemar(better: int, worse: int) -> float:
    """Return the two-sided exact p of McNemar's test, in which each row that flipped is a coin toss.

    min(1, 2 P(X <= min(better, worse))) with X binomial(better + worse, 1/2) (McNemar 1947, Psychometrika 12, 153).
    1.0 if no row flipped. Five flips to one side can never reach 0.05. Negative counts: ValueError.

    >>> mcnemar(9, 1), mcnemar(5, 0)
    (0.021484375, 0.0625)
    """
    if better < 0 or worse < 0:
        raise ValueError(f"{better} and {worse} are not counts of rows")
    flips, fewer = better + worse, min(better, worse)
    ways = term = 1
    for i in range(fewer):
        term = term * (flips - i) // (i + 1)
        ways += term
    return min(1.0, 2 * ways / (1 << flips))


def bonett_price(better: int, worse: int, n: int, level: float = LEVEL) -> Interval:
    """Return the interval of a difference of two proportions over the same n rows.

    Bonett and Price 2012 (J. Educ. Behav. Stat. 37, 479): Wald's interval with one more row that rose and one that
    fell, so it has a width even if no row flipped. Undefined without rows: ValueError.

    >>> interval = bonett_price(0, 0, 100)
    >>> round(interval.low, 4), round(interval.high, 4)
    (-0.0272, 0.0272)
    """
    if n < 1 or better + worse > n:
        raise ValueError(f"the interval of {better} better and {worse} worse of {n} rows is undefined")
    up, down = (better + 1) / (n + 2), (worse + 1) / (n + 2)
    half = normal_quantile((1 + level) / 2) * math.sqrt((up + down - (up - down) ** 2) / (n + 2))
    return Interval(max(-1.0, up - down - half), min(1.0, up - down + half), "Bonett-Price", level)


def sign_flip(differences: Sequence[float], seed: int = 0) -> tuple[float, str]:
    """Return the two-sided p of a paired permutation test, and the name of the method.

    If new and old were alike, each row's difference could as well have the other sign. p is the share of all sign
    assignments whose sum is at least as far from zero (Fisher 1935, The Design of Experiments, section 21). It is exact
    for few rows, and if the differences are multiples of a common fraction, like those of pass rates. Otherwise it
    comes from `DRAWS` assignments drawn with `seed`, and the observed one (Phipson and Smyth 2010, equation 2). 1.0 if
    no row differs.

    >>> sign_flip([0.5, 0.25, 0.25])
    (0.25, 'sign-flip, exact')
    """
    sizes = [abs(d) for d in differences if d != 0]
    if not sizes:
        return 1.0, "sign-flip, exact"
    steps = _whole_steps(sizes)
    if steps is not None and sum(steps) * (len(steps) + 1) <= MAX_EXACT_BITS:
        signs = (1 if d > 0 else -1 for d in differences if d != 0)
        whole_sum = sum(sign * step for sign, step in zip(signs, steps, strict=True))
        return _counted(steps, abs(whole_sum)), "sign-flip, exact"
    observed = abs(math.fsum(differences)) * (1 - 1e-12)  # an equal sum may differ in its last digit
    if len(sizes) <= 2 * BLOCK:
        sums = _block_sums(sizes)
        return sum(abs(total) >= observed for total in sums) / len(sums), "sign-flip, exact"
    return _drawn(sizes, observed, seed), f"sign-flip, {DRAWS:,} draws, seed {seed}"


def holm(ps: Sequence[float]) -> list[float]:
    """Return each p adjusted for the number of comparisons, in the same order.

    Holm 1979 (Scand. J. Statist. 6, 65): the i-th smallest of m is multiplied by m - i + 1, and is at least as large as
    the one before it.

    >>> holm([0.01, 0.04, 0.03, 0.005])
    [0.03, 0.06, 0.06, 0.02]
    """
    adjusted = [0.0] * len(ps)
    largest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        largest = max(largest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = largest
    return adjusted


def _whole_steps(sizes: Sequence[float]) -> list[int] | None:
    """Return the sizes as whole multiples of one fraction, or None if they are not multiples of a usable fraction.

    A float stands for the nearest fraction with a small denominator: 0.333... for 1/3.
    """
    fractions = [Fraction(size).limit_denominator(MAX_DENOMINATOR) for size in sizes]
    if any(not math.isclose(fraction, size, rel_tol=1e-9) for fraction, size in zip(fractions, sizes, strict=True)):
        return None
    common = math.lcm(*(fraction.denominator for fraction in set(fractions)))
    steps = [int(fraction * common) for fraction in fractions]
    divisor = math.gcd(*steps)
    return [step // divisor for step in steps]


def _counted(steps: Sequence[int], observed: int) -> float:
    """Return the share of all sign assignments whose sum is at least `observed` in absolute value.

    Computes the product of all (1 + x^step) as one integer. Its digits in base 2^width are the coefficients: digit i
    counts the assignments whose positive steps sum to i. In a sum of s, the positive steps sum to (total + s) / 2.
    """
    width = 8 * (len(steps) // 8 + 1)
    ways = 1
    for step in steps:
        ways += ways << (width * step)
    total = sum(steps)
    digits = ways.to_bytes((total + 1) * width // 8, "little")
    first = (total + observed) // 2
    size = width // 8
    upper = sum(int.from_bytes(digits[i * size : (i + 1) * size], "little") for i in range(first, total + 1))
    return min(1.0, 2 * upper / (1 << len(steps)))


def _drawn(sizes: Sequence[float], observed: float, seed: int) -> float:
    tables = list(_tables(sizes))
    random = Random(seed)
    hits = 0
    for _ in range(DRAWS):
        signs = random.randbytes(len(tables))
        hits += abs(sum(table[byte] for table, byte in zip(tables, signs, strict=True))) >= observed
    return (hits + 1) / (DRAWS + 1)


def _tables(sizes: Sequence[float]) -> Iterator[list[float]]:
    """Yield the sums of all sign assignments of each block of rows. The bits of an index are the signs."""
    for first in range(0, len(sizes), BLOCK):
        block = list(sizes[first : first + BLOCK])
        yield _block_sums(block + [0.0] * (BLOCK - len(block)))


def _block_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + size for total in sums] + [total - size for total in sums]
    return sums
