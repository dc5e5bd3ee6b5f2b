"""Gates: conditions on the aggregate, with three-valued verdicts. "We could not measure" is never "passed".

A gate holds if it holds with every unmeasured run counted as a fail (0.0), fails if it fails with every one counted as
a pass (1.0), and is otherwise not measured. Where scores leave 0..1, an unmeasured one is taken for the lowest or the
highest seen.

A value that differs from the minimum in its last digits only is the minimum: 7 of 10 is 0.7, and so is the mean of 0.1,
0.2 and 1.8, though floats say otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.text.numbers import distinguishable, plural

State = Literal["holds", "fails", "not measured", "partial", "not decided"]

Runs = Sequence[Sequence[float | None]]
"""The runs of each row: a score, or 1.0 and 0.0 for passed and not; None where it was not measured."""

ONE_SIDED = 0.90
"""The two-sided level whose ends are the one-sided 95% bounds."""
DROP = 0.05
"""The loss that a gate should notice: 5 points."""
UNDEFINED = "the rows show no spread, so there is no interval"


class Power(NamedTuple):
    """The chance that a gate fails where the truth lies `DROP` below its minimum; `n_rows` would make it 0.8."""

    chance: float
    n_rows: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of one gate. `title` is the gate ("pass_rate >= 0.7"), `text` the finding in words.

    `value` is the metric with unmeasured runs counted as fails, `compared` what the rule compares: the value itself,
    or an end of its interval. Both are None where nothing was measured. `rule` is None for a gate that is none of the
    config's, `power` where it is not defined.
    """

    title: str
    state: State
    text: str
    value: float | None = None
    rule: GateRule | None = None
    compared: float | None = None
    power: Power | None = None


def title_of(rule: GateRule) -> str:
    """A gate in words.

    >>> title_of(GateRule("pass_rate", 0.7))
    'pass_rate >= 0.7'
    >>> title_of(GateRule("pass_at", 0.7, "lower", k=3, function="rewards:exact"))
    'rewards:exact pass_at_3 >= 0.7 (lower)'
    >>> title_of(GateRule("max_regression", -0.02))
    'max_regression <= 0.02'
    """
    if rule.metric == "max_regression":
        return f"{rule.name} <= {-rule.minimum:.12g}"
    function = f"{rule.function} " if rule.function else ""
    return f"{function}{rule.name} >= {rule.minimum:.12g}{'' if rule.rule == 'point' else f' ({rule.rule})'}"


def decide(rule: GateRule, runs: Runs) -> Verdict:
    """The verdict on a complete selection."""

    def verdict(state: State, text: str, found: _Finding | None = None) -> Verdict:
        if found is None:
            return Verdict(title_of(rule), state, text, rule=rule)
        return Verdict(title_of(rule), state, text, found.value, rule, found.compared, _power(rule, found))

    measured = [value for row in runs for value in row if value is not None]
    if not measured:
        return verdict("not measured", "no run was measured")
    low, high = min(0.0, *measured), max(1.0, *measured)
    n_unmeasured = sum(value is None for row in runs for value in row)
    worst = _finding(rule, _filled(runs, low))
    best = _finding(rule, _filled(runs, high)) if n_unmeasured else worst
    if worst is None or best is None:
        return verdict("not measured", f"no row has {plural(rule.k or 1, 'run')}")
    if worst.compared is None or best.compared is None:
        return verdict("not measured", f"{rule.name} {worst.value:g}: {UNDEFINED}", worst)
    counted = _counted(rule, worst)
    unmeasured = f", {n_unmeasured:,} not measured" if n_unmeasured else ""
    lowest, _ = distinguishable(worst.compared, rule.minimum)
    highest, _ = distinguishable(best.compared, rule.minimum)
    what = rule.name if rule.rule == "point" else f"{rule.name} {worst.value:.4g}, its {rule.rule} bound"

    if _reaches(worst.compared, rule.minimum):
        assumed = f"{unmeasured} and counted as {_as_fails(rule, low)}" if unmeasured else ""
        return verdict("holds", f"{what} {lowest} ({counted}{assumed})", worst)
    if not _reaches(best.compared, rule.minimum):
        assumed = f"{unmeasured}, at most {highest} had they {_as_passes(rule, high)}" if unmeasured else ""
        return verdict("fails", f"{what} {lowest} ({counted}{assumed})", worst)
    return verdict("not measured", f"{what} is between {lowest} and {highest} ({counted}{unmeasured})", worst)


class Short(NamedTuple):
    """How many more runs must at the least pass before a gate holds for certain, or not pass before it fails.

    Either is 0 where that is so.
    """

    passes: int
    fails: int


def needs_all(rule: GateRule, *, removable: bool) -> str | None:
    """Why only all runs together decide a gate, None where some of them may. `removable`: runs may be taken out.

    A run that is taken out brings a share no further than its failing or its passing would; but it may take a row out
    of pass@k, which moves the mean of the others either way.
    """
    if rule.metric == "max_regression":
        return "its p hangs on all runs"
    if rule.metric == "mean":
        return "nothing says between which bounds its scores lie"
    if rule.rule != "point":
        return f"its {rule.rule} bound hangs on the spread of all runs"
    if rule.k is not None and removable:
        return "a Grader may take runs out, and rows with them"
    return None


def short_of(rule: GateRule, runs: Runs) -> Short:
    """How far a gate that does not need all runs is from the verdict of `decide`, with its bounds.

    A run moves a bound by one of the values whose mean it is, at the most.
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
    """A whole number of runs, never too many where floats are a hair above one."""
    return max(1, math.ceil(n - 1e-6))


def partial(rule: GateRule, part: str) -> Verdict:
    """The verdict where only `part` of the plan was selected ("12 of 500 runs"): none."""
    return Verdict(title_of(rule), "partial", part, rule=rule)


def not_measured(rule: GateRule, why: str) -> Verdict:
    """The verdict where there is nothing to look at."""
    return Verdict(title_of(rule), "not measured", why, rule=rule)


def not_decided(rule: GateRule, why: str) -> Verdict:
    """The verdict where nobody wants one."""
    return Verdict(title_of(rule), "not decided", why, rule=rule)


class _Finding(NamedTuple):
    """A metric of rows of which every run has a value. `se` is that of its normal approximation below the minimum."""

    value: float
    compared: float | None
    n_rows: int
    n_runs: int
    passed: int
    se: float | None


def _filled(runs: Runs, fill: float) -> list[list[float]]:
    return [[fill if value is None else value for value in row] for row in runs if row]


def _finding(rule: GateRule, rows: Sequence[Sequence[float]]) -> _Finding | None:
    """The metric and what the rule compares; None where no row has k runs."""
    passed = sum(value == 1.0 for row in rows for value in row)
    n_runs = sum(len(row) for row in rows if len(row) >= (rule.k or 1))
    rows = _values(rule, rows)
    if not rows:
        return None
    found = stats.clusters(rows)
    if rule.metric == "mean":
        interval, se = stats.mean_interval(found, ONE_SIDED), found.se
    else:
        interval, se = stats.share_interval(found, ONE_SIDED, n_runs), _se_below(rule, stats.effective_n(found, n_runs))
    value = rule.minimum if _same(found.mean, rule.minimum) else found.mean
    ends = {"point": value, "lower": interval and interval.low, "upper": interval and interval.high}
    return _Finding(value, ends[rule.rule], found.n_rows, n_runs, passed, se)


def _values(rule: GateRule, rows: Sequence[Sequence[float]]) -> Sequence[Sequence[float]]:
    """The values whose mean is the metric: those of runs, or an estimate for each row that has k of them."""
    if rule.k is None:
        return rows
    estimate = stats.pass_at_k if rule.metric == "pass_at" else stats.pass_hat_k
    return [[estimate(len(row), sum(value == 1.0 for value in row), rule.k)] for row in rows if len(row) >= rule.k]


def _se_below(rule: GateRule, n: float) -> float | None:
    """The standard error of a share that lies `DROP` below the minimum; None where no share does."""
    share = rule.minimum - DROP
    return math.sqrt(share * (1 - share) / n) if share > 0 else None


def _power(rule: GateRule, found: _Finding) -> Power | None:
    """The chance to notice a drop, from the spread that this eval showed."""
    if not found.se:
        return None
    z = stats.normal_quantile((1 + ONE_SIDED) / 2)
    shift = {"point": 0.0, "lower": -z, "upper": z}[rule.rule]  # the gate fails below minimum - shift * se
    needed = (stats.normal_quantile(stats.POWER) + shift) * found.se / DROP
    chance = stats.chance_below(DROP - shift * found.se, found.se)
    return Power(chance, math.ceil(found.n_rows * needed**2) if needed > 0 else 1)


def _reaches(value: float, minimum: float) -> bool:
    return value >= minimum or _same(value, minimum)


def _same(value: float, minimum: float) -> bool:
    return math.isclose(value, minimum, rel_tol=1e-12, abs_tol=1e-15)


def _counted(rule: GateRule, found: _Finding) -> str:
    if rule.metric == "pass_rate":
        return f"{found.passed:,} of {plural(found.n_runs, 'run')} passed"
    return plural(found.n_runs, "run") if rule.k is None else plural(found.n_rows, "row")


def _as_fails(rule: GateRule, low: float) -> str:
    return f"{low:g}" if rule.metric == "mean" else "not passed"


def _as_passes(rule: GateRule, high: float) -> str:
    return f"scored {high:g}" if rule.metric == "mean" else "passed"
