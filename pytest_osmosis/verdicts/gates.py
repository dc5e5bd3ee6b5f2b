"""Gates: conditions on the whole eval, which hold, fail, or were not measured.

A gate holds if it holds with every unmeasured run counted as a fail (0.0), fails if it fails with every one counted as
a pass (1.0), and is otherwise not measured. The scores of a mean are bounded by their declared range, or by 0..1. If
they leave it, nothing bounds those of unmeasured runs, and the gate is not measured while there are any. Metrics and
both ends of their intervals rise, or stay, if any score rises, so the two cases bound all others.

Rounding errors of floats do not matter: the mean of 0.1, 0.2 and 1.8 reaches 0.7.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

from msgspec import Struct, field

from pytest_osmosis import stats
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.formats.codec import Count, Share
from pytest_osmosis.text.numbers import distinguishable, plural, score

State = Literal["holds", "fails", "not measured", "partial", "not decided"]
UNDECIDED: frozenset[State] = frozenset({"partial", "not decided"})
"""The states of gates about which a session decides nothing: only some runs were selected, or the baseline is new."""

Runs = Sequence[Sequence[float | None]]
"""The runs of each row: a score, or 1.0 and 0.0 for passed and not; None for an unmeasured run."""

NORMAL_RANGE = (0.0, 1.0)
"""The range of scores for which none is declared."""
ONE_SIDED = 0.90
"""The two-sided level whose ends are the one-sided 95% bounds."""
DROP = 0.05
"""The loss that a gate should notice: 5 points."""
MOST_NEEDED = 1e5
"""The largest factor by which the precision of an eval may have to rise for its number of rows to be told."""
ENOUGH_ROWS = 100
"""Rows with which any gate on the value of a pass rate has power: sqrt(n) / 10 - 1 / sqrt(n) is then above 0.8416."""


class Power(Struct, frozen=True):
    """The chance that a gate fails if the truth is `DROP` below its minimum; with `rows` rows it would be 0.8."""

    chance: Share
    rows: Count

    @property
    def is_low(self) -> bool:
        """True if the chance is below 0.8 as it is printed."""
        return round(self.chance, 2) < stats.POWER


class Verdict(Struct, frozen=True):
    """The verdict of one gate. `pytest_osmosis_gate` returns such verdicts."""

    title: str = field(name="gate")
    """The gate in words, like "pass_rate >= 0.7"."""
    state: State
    """ "holds", "fails" or "not measured"; the plugin itself also uses "partial" and "not decided"."""
    text: str = field(name="finding")
    """The verdict in words."""
    value: float | None = None
    """The metric with unmeasured runs counted as fails, None if no run was measured."""
    rule: GateRule | None = None  # None for a gate that is not from the config
    compared: float | None = None
    """The number that the gate compares, which is the value itself, or an end of its interval."""
    power: Power | None = None  # None if it is undefined


def title_of(rule: GateRule) -> str:
    """Return a gate in words.

    >>> title_of(GateRule("pass_rate", 0.7))
    'pass_rate >= 0.7'
    >>> title_of(GateRule("pass_at", 0.7, "lower", k=3, function="rewards:exact"))
    'rewards:exact pass_at_3 >= 0.7 (lower)'
    >>> title_of(GateRule("max_regression", -0.02))
    'max_regression <= 0.02'
    """
    if rule.is_regression:
        return f"{rule.name} <= {-rule.minimum:.12g}"
    function = f"{rule.function} " if rule.function else ""
    return f"{function}{rule.name} >= {rule.minimum:.12g}{'' if rule.rule == 'point' else f' ({rule.rule})'}"


def decide(rule: GateRule, runs: Runs, declared: tuple[float, float] | None = None) -> Verdict:
    """Return the verdict on a complete selection. `declared` is the range of a mean's scores, if there is one."""

    def verdict(state: State, text: str, metric: _Metric | None = None) -> Verdict:
        if metric is None:
            return verdict_without_value(rule, state, text)
        return Verdict(title_of(rule), state, text, metric.value, rule, metric.compared, _power(rule, metric))

    measured = [value for row in runs for value in row if value is not None]
    if not measured:
        return verdict("not measured", "no run was measured")
    low, high = scores = stats.score_range(measured, declared or NORMAL_RANGE)
    n_unmeasured = sum(value is None for row in runs for value in row)
    worst = _metric(rule, _filled(runs, low), scores)
    best = _metric(rule, _filled(runs, high), scores) if n_unmeasured else worst
    if worst is None or best is None:
        return verdict("not measured", f"no row has {plural(rule.k or 1, 'run')}")
    counted, is_mean = _counted(rule, worst), rule.metric == "mean"
    unmeasured = f", {n_unmeasured:,} not measured" if n_unmeasured else ""
    if is_mean and n_unmeasured and not _bounded(measured, declared):
        why = "scores leave 0 to 1, and [scoring] score_ranges declares no range that holds them"
        return verdict("not measured", f"{counted}{unmeasured}; {why}")
    lowest, highest = (_number(metric.compared, rule.minimum) for metric in (worst, best))
    value = "" if rule.rule == "point" else f"{score(worst.value)}, {rule.rule} bound "

    if _reaches(worst.compared, rule.minimum):
        assumed = f"{unmeasured} and counted as {f'{low:g}' if is_mean else 'not passed'}" if unmeasured else ""
        return verdict("holds", f"{value}{lowest} ({counted}{assumed})", worst)
    if not _reaches(best.compared, rule.minimum):
        had = f"scored {high:g}" if is_mean else "passed"
        assumed = f"{unmeasured}; at most {highest} if they had {had}" if unmeasured else ""
        return verdict("fails", f"{value}{lowest} ({counted}{assumed})", worst)
    return verdict("not measured", f"{value}between {lowest} and {highest} ({counted}{unmeasured})", worst)


def _bounded(measured: Sequence[float], declared: tuple[float, float] | None) -> bool:
    """Return True if the range of scores is known: all lie in the declared one, in which a crash may count as 0.0."""
    low, high = declared or NORMAL_RANGE
    return min(measured) >= min(low, 0.0) and max(measured) <= max(high, 0.0)


class Short(NamedTuple):
    """The least number of further passes after which a gate may be certain to hold, or of further fails until it fails.

    `passes` is 0 if the gate holds, `fails` is 0 if it fails, whatever the missing runs would be.
    """

    passes: int
    fails: int


def needs_all(rule: GateRule, *, removable: bool) -> str | None:
    """Return why a gate cannot be decided before all runs are done, None if it can.

    `removable` says that a Grader may remove runs. Removing a run moves a share no further than a fail or a pass of it
    would, but it may remove a row from pass@k, which moves the mean of the other rows in either direction.
    """
    if rule.is_regression:
        return "its p depends on all runs"
    if rule.metric == "mean":
        return "its scores have no known bounds"
    if rule.rule != "point":
        return f"its {rule.rule} bound depends on the spread of all runs"
    if rule.k is not None and removable:
        return "a Grader may remove runs, and rows with them"
    return None


def short_of(rule: GateRule, runs: Runs) -> Short:
    """Return how many runs a gate is away from a verdict that is certain, for gates that do not need all runs.

    One run moves a bound by at most one of the values that the bound is the mean of.
    """
    if all(value is None for row in runs for value in row):
        return Short(1, 1)
    worst, best = (_values(rule, _filled(runs, fill)) for fill in (0.0, 1.0))
    if not worst:
        return Short(1, 1)
    lowest, highest = (stats.mean([value for row in rows for value in row]) for rows in (worst, best))
    if _reaches(lowest, rule.minimum):
        return Short(0, 1)
    if not _reaches(highest, rule.minimum):
        return Short(1, 0)
    n_values = sum(map(len, worst))
    return Short(_at_least(n_values * (rule.minimum - lowest)), _at_least(n_values * (highest - rule.minimum)))


def _at_least(n: float) -> int:
    """Return `n` rounded up, unless it exceeds a whole number only by a rounding error."""
    return max(1, math.ceil(n - 1e-6))


def _number(value: float, minimum: float) -> str:
    """Return a value as the summary shows it, with more digits if it would otherwise seem to lie elsewhere.

    >>> _number(0.7, 0.7), _number(0.6999, 0.7), _number(2 / 3, 0.667)
    ('0.700', '0.6999', '0.666667')
    """
    if abs(value) >= 1000:
        return score(value)
    seems = round(value, 3)
    lies_there = seems != minimum and (seems > minimum) == (value > minimum)
    return score(value) if lies_there or _same(value, minimum) else distinguishable(value, minimum)[0]


def verdict_without_value(rule: GateRule, state: State, text: str) -> Verdict:
    return Verdict(title_of(rule), state, text, rule=rule)


class _Metric(NamedTuple):
    """A metric of rows whose runs all have values. `se` is the standard error `DROP` below the minimum, for power."""

    value: float
    compared: float
    n_rows: int
    n_runs: int
    passed: int
    se: float | None


def _filled(runs: Runs, fill: float) -> list[list[float]]:
    return [[fill if value is None else value for value in row] for row in runs if row]


def _metric(rule: GateRule, rows: Sequence[Sequence[float]], scores: tuple[float, float]) -> _Metric | None:
    """Return the metric, None if no row has k runs. `scores` is the range of a mean's scores."""
    passed = sum(value == 1.0 for row in rows for value in row)
    n_runs = sum(len(row) for row in rows if len(row) >= (rule.k or 1))
    rows = _values(rule, rows)
    if not rows:
        return None
    clusters = stats.clusters(rows)
    is_mean = rule.metric == "mean"
    se = clusters.se if is_mean else _se_below(rule, stats.effective_n(clusters, n_runs))
    value = compared = rule.minimum if _same(clusters.mean, rule.minimum) else clusters.mean
    if rule.rule != "point":
        interval = stats.gaffke(rows, *(scores if is_mean else (0.0, 1.0)), level=ONE_SIDED)
        compared = interval.low if rule.rule == "lower" else interval.high
    return _Metric(value, compared, clusters.n_rows, n_runs, passed, se)


def _values(rule: GateRule, rows: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """Return the values whose mean is the metric: those of runs, or an estimate for each row with k runs."""
    if rule.k is None:
        return rows
    estimate = stats.pass_at_k if rule.metric == "pass_at" else stats.pass_hat_k
    return [[estimate(len(row), sum(value == 1.0 for value in row), rule.k)] for row in rows if len(row) >= rule.k]


def _se_below(rule: GateRule, n: float) -> float | None:
    """Return the standard error of a share that is `DROP` below the minimum, None if no share can be."""
    share = rule.minimum - DROP
    return math.sqrt(share * (1 - share) / n) if share > 0 else None


def _power(rule: GateRule, metric: _Metric) -> Power | None:
    """Return the chance to notice a drop, from the spread of this eval's runs."""
    if not metric.se:
        return None
    if rule.metric == "pass_rate" and rule.rule == "point":
        return _power_of_count(rule, metric.se, metric.n_rows, metric.n_runs)
    z = stats.normal_quantile((1 + ONE_SIDED) / 2)
    shift = {"point": 0.0, "lower": -z, "upper": z}[rule.rule]  # the gate fails below minimum - shift * se
    needed = (stats.normal_quantile(stats.POWER) + shift) * metric.se / DROP
    chance = stats.chance_below(DROP - shift * metric.se, metric.se)
    if abs(needed) > MOST_NEEDED:
        return None
    return Power(chance, math.ceil(metric.n_rows * needed**2) if needed > 0 else 1)


def _power_of_count(rule: GateRule, se: float, n_rows: int, n_runs: int) -> Power:
    """Return the power of a gate that fails if too few runs pass.

    Passes are whole numbers, so the normal approximation needs a continuity correction: half a run.
    """

    def chance(rows: int) -> float:
        runs = rows * n_runs / n_rows
        least = math.ceil(rule.minimum * runs - 1e-9) - 0.5
        return stats.chance_below(least / runs - (rule.minimum - DROP), se * math.sqrt(n_rows / rows))

    too_few = [rows for rows in range(1, ENOUGH_ROWS) if chance(rows) < stats.POWER]
    return Power(chance(n_rows), max(too_few, default=0) + 1)


def _reaches(value: float, minimum: float) -> bool:
    return value >= minimum or _same(value, minimum)


def _same(value: float, minimum: float) -> bool:
    return math.isclose(value, minimum, rel_tol=1e-12, abs_tol=1e-15)


def _counted(rule: GateRule, metric: _Metric) -> str:
    if rule.metric == "pass_rate":
        return f"{metric.passed:,} of {plural(metric.n_runs, 'run')} passed"
    return plural(metric.n_runs, "run") if rule.k is None else plural(metric.n_rows, "row")
