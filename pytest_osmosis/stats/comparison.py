"""Tests of two evals: paired ones over the same rows, and others over different rows.

The runs of a row are averaged first. The same rows are compared one by one, because a hard row is hard for both evals.
Different rows are independent samples.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from random import Random
from typing import NamedTuple

from msgspec import Struct

from pytest_osmosis.stats.intervals import ALPHA, LEVEL, Interval, agreeing, crossing, gaffke, normal_quantile
from pytest_osmosis.stats.summary import mean, sample_variance

DRAWS = 20_000
SEED = 0
MAX_EXACT_BITS = 20_000_000  # the largest integer in which sign assignments are counted: a quarter of a second
MAX_DENOMINATOR = 1_000_000
BLOCK = 8  # the number of rows whose signs are drawn together, as the bits of one byte
MAX_SIZES = 64  # the largest number of different sizes whose signs are drawn size by size
MAX_SIGNS = 512  # the largest number of rows whose signs are drawn one by one


class Paired(Struct, frozen=True):
    """The result of comparing the same rows in two evals.

    `difference` is the mean of new minus old over `n_rows` rows. `better` rows rose, and `worse` rows fell. `se` is the
    difference's standard error, None if all rows have the same difference. `p` is the two-sided chance, by `test`, of a
    difference at least as large if new and old are alike. It is below `ALPHA` exactly if 0 lies outside `interval`.
    """

    n_rows: int
    better: int
    worse: int
    difference: float
    se: float | None
    interval: Interval
    p: float
    test: str


class PairedTest(NamedTuple):
    """The mean of new minus old, and its two-sided `p` by `test`."""

    difference: float
    p: float
    test: str


def paired_test(new: Sequence[float], old: Sequence[float]) -> PairedTest:
    """Test the difference between two evals as `compare` does, without its interval, which takes most of the time."""
    if len(new) != len(old):
        raise ValueError(f"{len(new)} rows cannot be paired with {len(old)}")
    if any(not 0 <= value <= 1 for value in (*new, *old)):
        raise ValueError("a comparison is undefined for values outside 0..1")
    differences = _differences(new, old)
    center = mean(differences)
    if all(value in (0, 1) for value in (*new, *old)):
        better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
        return PairedTest(center, mcnemar(better, worse), "McNemar, exact")
    return PairedTest(center, *sign_flip(differences))


def _differences(new: Sequence[float], old: Sequence[float]) -> list[float]:
    return [float(a - b) for a, b in zip(new, old, strict=True)]


def compare(new: Sequence[float], old: Sequence[float]) -> Paired:
    """Compare two evals by the value of each row (the mean of its runs, in 0..1), in the same order.

    If all values are 0 or 1, the test is McNemar's exact test, otherwise a sign-flip permutation test. The interval is
    Gaffke's. It is made to agree with the test: if it must not contain 0, its end beyond 0 becomes that of the inverted
    test. The differences, less a shift, are flipped instead, and the shifts that are not rejected form an interval
    (Hartigan 1969, J. Am. Stat. Assoc. 64, 1303). McNemar's test never needs this: its p is twice the chance that
    Gaffke's bound without mid-p compares with.
    Undefined without rows, for lists of different lengths and for values outside 0..1: ValueError.

    >>> result = compare([1, 1, 0, 1, 0, 1, 1, 0, 1, 1], [1, 0, 0, 1, 0, 0, 1, 1, 0, 1])
    >>> result.better, result.worse, round(result.difference, 9), result.p, result.test
    (3, 1, 0.2, 0.625, 'McNemar, exact')
    """
    center, p, test = paired_test(new, old)
    differences = _differences(new, old)
    better, worse = sum(d > 0 for d in differences), sum(d < 0 for d in differences)
    variance = sample_variance(differences)
    se = math.sqrt(variance / len(differences)) if variance else None
    interval = gaffke([[d] for d in differences], -1.0)
    interval = agreeing(interval, p, lambda: _least_shift(differences, p), "and sign-flip")
    return Paired(len(differences), better, worse, center, se, interval, p, test)


def _least_shift(differences: Sequence[float], p: float) -> float:
    """Return the shift next to 0 at which the sign-flip test would no longer reject, if it gives p < `ALPHA` without.

    Sums of flipped differences are taken as normal, with the critical value that makes p right for no shift. It lies
    between 0 and the mean, never at 0.
    """
    n, center = len(differences), mean(differences)
    largest = max(map(abs, differences))
    scaled = [d / largest for d in differences]  # squares cannot underflow
    middle = center / largest
    around = math.fsum((d - middle) ** 2 for d in scaled)
    squares = math.fsum(d * d for d in scaled)
    critical = n * middle / math.sqrt(squares) * normal_quantile(ALPHA / 2) / normal_quantile(max(p, 1e-300) / 2)
    shift = abs(middle) - abs(critical) * math.sqrt(around / (n * (n - critical**2)))
    return math.copysign(max(shift, 1e-9 * abs(middle)) * largest, center)


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


def sign_flip(differences: Sequence[float]) -> tuple[float, str]:
    """Return the two-sided p of a paired permutation test, and the name of the method.

    If new and old were alike, each row's difference could as well have the other sign. p is the share of all sign
    assignments whose sum is at least as far from zero (Fisher 1935, The Design of Experiments, section 21). It is exact
    for few rows, and if the differences are multiples of a common fraction, like those of pass rates. Otherwise it
    comes from `DRAWS` assignments drawn with `SEED`, and the observed one (Phipson and Smyth 2010, equation 2). 1.0 if
    no row differs.

    >>> sign_flip([0.5, 0.25, 0.25])
    (0.25, 'sign-flip, exact')
    """
    sizes = [abs(d) for d in differences if d != 0]
    if not sizes:
        return 1.0, "sign-flip, exact"
    counts = Counter(sizes)
    steps = _whole_steps(list(counts))
    if steps is not None and _bits(counts, steps) <= MAX_EXACT_BITS:
        whole_sum = sum(int(math.copysign(steps[abs(d)], d)) for d in differences if d != 0)
        return _counted([steps[size] for size in sizes], abs(whole_sum)), "sign-flip, exact"
    observed = abs(math.fsum(differences)) * (1 - 1e-12)  # an equal sum may differ in its last digit
    if len(sizes) <= 2 * BLOCK:
        sums = _block_sums(sizes)
        return sum(abs(total) >= observed for total in sums) / len(sums), "sign-flip, exact"
    return _drawn(counts, observed), f"sign-flip, {DRAWS:,} draws, seed {SEED}"


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


def _whole_steps(sizes: Sequence[float]) -> dict[float, int] | None:
    """Return the sizes as whole multiples of one fraction, or None if they are not multiples of a usable fraction.

    A float stands for the nearest fraction with a small denominator: 0.333... for 1/3.
    """
    fractions = [Fraction(size).limit_denominator(MAX_DENOMINATOR) for size in sizes]
    if any(not math.isclose(fraction, size, rel_tol=1e-9) for fraction, size in zip(fractions, sizes, strict=True)):
        return None
    common = math.lcm(*(fraction.denominator for fraction in fractions))
    steps = [int(fraction * common) for fraction in fractions]
    divisor = math.gcd(*steps)
    return {size: step // divisor for size, step in zip(sizes, steps, strict=True)}


def _bits(counts: Counter[float], steps: Mapping[float, int]) -> int:
    """Return the length of the integer in which `_counted` counts."""
    return sum(count * steps[size] for size, count in counts.items()) * (counts.total() + 1)


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


def _drawn(counts: Mapping[float, int], observed: float) -> float:
    """Return the share of drawn sign assignments, and the observed one, whose sum is at least `observed`."""
    random = Random(SEED)
    sums = _sums_by_size(counts, random) if len(counts) <= MAX_SIZES else _sums_by_row(counts, random)
    return (sum(abs(total) >= observed for total in itertools.islice(sums, DRAWS)) + 1) / (DRAWS + 1)


def _sums_by_size(counts: Mapping[float, int], random: Random) -> Iterator[float]:
    """Yield sums of drawn sign assignments. The number of positive signs is drawn for each size."""
    total = math.fsum(size * count for size, count in counts.items())
    groups = [(2 * size, count) for size, count in sorted(counts.items())]
    while True:
        yield sum(twice * random.getrandbits(count).bit_count() for twice, count in groups) - total


def _sums_by_row(counts: Mapping[float, int], random: Random) -> Iterator[float]:
    """Yield sums of drawn sign assignments. Beyond the `MAX_SIGNS` largest sizes, the sum of the rest is normal."""
    sizes = [size for size, count in sorted(counts.items(), reverse=True) for _ in range(count)]
    tables = [_block_sums(sizes[first : first + BLOCK]) for first in range(0, min(len(sizes), MAX_SIGNS), BLOCK)]
    rest = math.hypot(*sizes[MAX_SIGNS:])
    while True:
        signs = random.randbytes(len(tables))  # the bits of a byte are the signs of a block
        drawn = sum(table[byte % len(table)] for table, byte in zip(tables, signs, strict=True))
        yield drawn + random.gauss(0.0, rest) if rest else drawn


def _block_sums(sizes: Sequence[float]) -> list[float]:
    sums = [0.0]
    for size in sizes:
        sums = [total + size for total in sums] + [total - size for total in sums]
    return sums


METHOD = "MOVER, Gaffke"
INVERTED = "MOVER, inverted"
MAX_EXACT_ROWS = 20_000
"""The most rows of both sides for which Fisher's test counts every table: a third of a second."""
LEAST_Z, LARGEST_Z = 1e-6, 8.0
"""The normal quantiles of the largest p below 1, and of the smallest one, 1e-15."""
PRECISION = 1e-9


class Unpaired(Struct, frozen=True):
    """The result of comparing different rows in two evals.

    `difference` is the mean of the `n_new` new rows minus that of the `n_old` old ones. `p` is the two-sided chance, by
    `test`, of a difference at least as large if both are samples of alike rows. It is below `ALPHA` exactly if 0 lies
    outside `interval`.
    """

    n_new: int
    n_old: int
    difference: float
    interval: Interval
    p: float
    test: str


def compare_unpaired(new: Sequence[float], old: Sequence[float]) -> Unpaired:
    """Compare two evals by the values of their rows (the mean of a row's runs, in 0..1).

    The interval joins those of both means: its lower end is d - sqrt((new - low_new)^2 + (high_old - old)^2), and its
    upper end mirrors it (Newcombe 1998, Stat. Med. 17, 873, method 10; Zou and Donner 2008, Stat. Med. 27, 1693). If
    all values are 0 or 1, the test is Fisher's exact test, and the interval is made to agree with it. Otherwise p is 1
    minus the level at which the interval touches 0. Undefined without rows, and for values outside 0..1: ValueError.

    >>> result = compare_unpaired([1.0] * 9 + [0.0], [1.0] * 3 + [0.0] * 7)
    >>> round(result.difference, 3), round(result.p, 10), result.test
    (0.6, 0.0197666111, 'Fisher, exact')
    """
    difference = mean(new) - mean(old)
    interval = _interval(new, old, LEVEL)
    if all(value in (0, 1) for value in (*new, *old)) and len(new) + len(old) <= MAX_EXACT_ROWS:
        p, test = fisher(round(sum(new)), len(new), round(sum(old)), len(old)), "Fisher, exact"
    else:
        p, test = _inverted(new, old), INVERTED
    interval = agreeing(interval, p, lambda: _end_of_test(difference, p), "test-based")
    return Unpaired(len(new), len(old), difference, interval, p, test)


def fisher(passed_new: int, n_new: int, passed_old: int, n_old: int) -> float:
    """Return the two-sided p of Fisher's exact test: the chance of all tables that are no likelier than this one.

    Fisher 1935 (J. R. Stat. Soc. 98, 39). Counts that no table can have: ValueError.

    >>> round(fisher(3, 10, 9, 10), 10)
    0.0197666111
    """
    if not (0 <= passed_new <= n_new and 0 <= passed_old <= n_old):
        raise ValueError(f"{passed_new} of {n_new} and {passed_old} of {n_old} are not counts of rows")
    passed = passed_new + passed_old
    least, most = max(0, passed - n_old), min(n_new, passed)
    ways = math.comb(n_new, least) * math.comb(n_old, passed - least)
    tables = []
    for here in range(least, most + 1):
        tables.append(ways)
        ways = ways * (n_new - here) * (passed - here) // ((here + 1) * (n_old - passed + here + 1))
    observed = tables[passed_new - least]
    unlikely = sum(table for table in tables if table <= observed)
    return unlikely / sum(tables)


def _interval(new: Sequence[float], old: Sequence[float], level: float) -> Interval:
    here, there = mean(new), mean(old)
    mine, theirs = (gaffke([[value] for value in values], level=level) for values in (new, old))
    below = math.hypot(here - mine.low, theirs.high - there)
    above = math.hypot(mine.high - here, there - theirs.low)
    difference = here - there
    return Interval(max(-1.0, difference - below), min(1.0, difference + above), METHOD, level)


def _inverted(new: Sequence[float], old: Sequence[float]) -> float:
    """Return 1 minus the level at which the interval touches 0.

    Searches for it by the normal quantile of the level, in which the ends of intervals are almost linear.
    """
    difference = mean(new) - mean(old)
    if math.isclose(difference, 0.0, abs_tol=1e-12):
        return 1.0

    def short(z: float) -> float:
        """Return how far the interval reaches to 0 and further, negative if 0 lies outside it."""
        interval = _interval(new, old, math.erf(z / math.sqrt(2)))
        return -interval.low if difference > 0 else interval.high

    if short(LEAST_Z) >= 0:
        return 1.0
    z = LARGEST_Z if short(LARGEST_Z) < 0 else crossing(short, LEAST_Z, LARGEST_Z, precision=PRECISION)
    return math.erfc(z / math.sqrt(2))


def _end_of_test(difference: float, p: float) -> float:
    """Return the end of the interval that is next to 0, from p as if the difference were normal.

    Source: Miettinen 1976, Am. J. Epidemiol. 103, 226.
    """
    share = 1 - normal_quantile(ALPHA / 2) / normal_quantile(max(p, 1e-300) / 2)
    return max(share, 1e-9) * difference
