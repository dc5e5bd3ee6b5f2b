"""Tests of two evals over different rows, which cannot be compared one by one.

The runs of a row are averaged first. Both sides are independent samples of rows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_osmosis.stats.distributions import normal_quantile
from pytest_osmosis.stats.intervals import LEVEL, Interval, agreeing, crossing, gaffke
from pytest_osmosis.stats.moments import mean
from pytest_osmosis.stats.power import ALPHA

METHOD = "MOVER, Gaffke"
INVERTED = "MOVER, inverted"
MAX_EXACT_ROWS = 20_000
"""The most rows of both sides for which Fisher's test counts every table: a third of a second."""
LEAST_Z, LARGEST_Z = 1e-6, 8.0
"""The normal quantiles of the largest p below 1, and of the smallest one, 1e-15."""
PRECISION = 1e-9


@dataclass(frozen=True, slots=True)
class Unpaired:
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
