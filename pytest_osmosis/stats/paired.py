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
MAX_EXACT_BITS = 20_000_000
"""The largest integer, in bits, in which sign assignments are counted exactly: a quarter of a second."""
MAX_DENOMINATOR = 1_000_000
BLOCK = 8
"""The number of rows whose signs are drawn together, as the bits of one byte."""


@dataclass(frozen=True, slots=True)
class Paired:
    """The result of comparing the same rows in two evals.

    `difference` is the mean of new minus old over `n_rows` rows; `better` rows rose and `worse` rows fell. `se` is its
    standard error and `interval` its interval, None if the rows show no spread. `p` is the two-sided chance of a
    difference at least as large if new and old are alike, by `test`.
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

    If every value is 0 or 1 (pass or fail of one run a row), this is McNemar's exact test with Bonett and Price's
    interval; otherwise a sign-flip permutation test with Student's t. `seed` is for permutations too many to count.
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
    """Return the interval of a difference of two proportions over the same n rows: some rose and some fell.

    Bonett and Price 2012 (J. Educ. Behav. Stat. 37, 479): Wald's interval with a row added on either side, so it has
    a width even if no row flipped. Undefined without rows: ValueError.

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

    If new and old were alike, each row's difference could as well have the other sign: p is the share of all sign
    assignments whose sum is at least as far from zero (Fisher 1935, The Design of Experiments, section 21). Exact
    if the sums can be counted (the differences are multiples of a common fraction, like those of pass rates) and
    for few rows; otherwise from `DRAWS` assignments drawn with `seed`, which include the observed one (Phipson and
    Smyth 2010, equation 2). 1.0 if no row differs.

    >>> sign_flip([0.5, 0.25, 0.25])
    (0.25, 'sign-flip, exact')
    """
    sizes = [abs(d) for d in differences if d != 0]
    if not sizes:
        return 1.0, "sign-flip, exact"
    steps = _whole_steps(sizes)
    if steps is not None and sum(steps) * (len(steps) + 1) <= MAX_EXACT_BITS:
        signed = _whole_sum(differences, steps)
        return _counted(steps, signed), "sign-flip, exact"
    observed = abs(math.fsum(differences))
    if len(sizes) <= 2 * BLOCK:
        return _enumerated(sizes, observed), "sign-flip, exact"
    return _drawn(sizes, observed, seed), f"sign-flip, {DRAWS:,} draws, seed {seed}"


def holm(ps: Sequence[float]) -> list[float]:
    """Return each p adjusted for the number of comparisons, in the order given.

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
    """Return the sizes as whole multiples of one fraction, None if no fraction of a usable size exists.

    1/3 arrives as a float near 1/3, so the nearest fraction with a small denominator is taken.
    """
    fractions = [Fraction(size).limit_denominator(MAX_DENOMINATOR) for size in sizes]
    if any(not math.isclose(fraction, size, rel_tol=1e-9) for fraction, size in zip(fractions, sizes, strict=True)):
        return None
    common = math.lcm(*(fraction.denominator for fraction in set(fractions)))
    steps = [int(fraction * common) for fraction in fractions]
    divisor = math.gcd(*steps)
    return [step // divisor for step in steps]


def _whole_sum(differences: Sequence[float], steps: Sequence[int]) -> int:
    signs = (1 if d > 0 else -1 for d in differences if d != 0)
    return abs(sum(sign * step for sign, step in zip(signs, steps, strict=True)))


def _counted(steps: Sequence[int], observed: int) -> float:
    """Return the share of all sign assignments whose sum is at least `observed` in absolute value.

    Computes the product of all (1 + x^step) as one integer. Its digits in base 2^width are the coefficients: the
    number of assignments with each sum of positive steps. A sum of s has (total + s) / 2 of positive steps.
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


def _enumerated(sizes: Sequence[float], observed: float) -> float:
    sums = _block_sums(sizes)
    bound = observed * (1 - 1e-12)  # an equal sum may differ in its last digit
    return sum(abs(total) >= bound for total in sums) / len(sums)


def _drawn(sizes: Sequence[float], observed: float, seed: int) -> float:
    tables = list(_tables(sizes))
    random = Random(seed)
    bound = observed * (1 - 1e-12)
    hits = 0
    for _ in range(DRAWS):
        signs = random.randbytes(len(tables))
        hits += abs(sum(table[byte] for table, byte in zip(tables, signs, strict=True))) >= bound
    return (hits + 1) / (DRAWS + 1)


def _tables(sizes: Sequence[float]) -> Iterator[list[float]]:
    """Yield for each block of rows the sums of its sign assignments, indexed by the byte whose bits are the signs."""
    for first in range(0, len(sizes), BLOCK):
        block = list(sizes[first : first + BLOCK])
        yield _block_sums(block + [0.0] * (BLOCK - len(block)))


def _block_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + size for total in sums] + [total - size for total in sums]
    return sums
