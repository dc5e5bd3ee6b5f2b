"""Comparisons of two eval runs over the same rows.

Rows are matched by their content, so a dataset whose rows moved is still compared; verdicts on the same rollouts, by
row index. The runs of a row count as the share of its measured runs that passed.

An eval is compared with its baseline, with the previous run of its plan, and, if it scores stored rollouts again, with
the verdicts before that.

A regression is a loss of pass rate beyond what the gate `max_regression` allows (nothing without that gate) that chance
alone would not produce: p < 0.05 in a two-sided paired test. If a session compares several evals with baselines, p is
corrected by Holm's method, so that the chance of any false alarm stays below 5% however many evals are compared.

If treating unmeasured runs as passes or as failures changes the verdict of the gate, the verdict is "not measured".

The entries of a config are compared with the first one: row by row if the rows are the same, else both are taken as
samples of different rows. Each is a test of its own, so p is corrected too, however many entries there are.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from pytest_osmosis import stats
from pytest_osmosis.config.eval_kinds import GateRule
from pytest_osmosis.formats.codec import Count, Moment, Positive, Share
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.stats import ALPHA, Interval, Paired
from pytest_osmosis.text.numbers import difference, p_value, plural, score
from pytest_osmosis.verdicts.gates import DROP, Power, Verdict, title_of, verdict_without_value

Runs = Sequence[bool | None]
"""For each run of a row whether it passed, None if it was not measured. Runs that a grader took out are missing."""


class RowRuns(NamedTuple):
    """The runs of a row, with its index and the digest of its content."""

    row_index: int
    digest: str
    runs: Runs


class Pair(NamedTuple):
    """A row with its runs here, and those of the same row earlier, when its index was `old_index`."""

    row_index: int
    old_index: int
    new: Runs
    old: Runs


class Passes(NamedTuple):
    """The number of a row's runs that passed, and of those that were measured."""

    passed: int
    measured: int


Against = Literal["last_run", "baseline", "rescored"]
"""The old side of a comparison: the previous run of the plan, the baseline, or the verdicts before a rescore."""


class ChangedRow(Struct, frozen=True, kw_only=True):
    """A row that passes more or less often than before, when it had the index `earlier_row_index`."""

    against: Against
    change: Literal["worse", "better"]
    row_index: Count
    passed: Count
    measured: Positive
    earlier_row_index: Count
    earlier_passed: Count
    earlier_measured: Positive

    @property
    def new(self) -> Passes:
        return Passes(self.passed, self.measured)

    @property
    def old(self) -> Passes:
        return Passes(self.earlier_passed, self.earlier_measured)

    @property
    def rise(self) -> float:
        """The rise of the share of runs that passed, negative for a row that is worse."""
        return self.passed / self.measured - self.earlier_passed / self.earlier_measured


class Matched(Struct, frozen=True):
    """The rows that both sides have, and the number of rows that only one side has.

    A row is `changed` if the other side has a row with different content at its index, `added` if only the new side
    has a row at its index, `removed` if only the old side has one.
    """

    pairs: Sequence[Pair]
    added: int = 0
    removed: int = 0
    changed: int = 0

    @property
    def n_unmatched(self) -> int:
        """The number of rows of both sides that have no match."""
        return self.added + self.removed + 2 * self.changed


def matched(new: Sequence[RowRuns], old: Sequence[RowRuns]) -> Matched:
    """Match rows with the same content; of several, the first with the first, and so on."""
    here, there = by_content(new), by_content(old)
    both = [(row, there[key]) for key, row in here.items() if key in there]
    pairs = [Pair(row.row_index, old.row_index, row.runs, old.runs) for row, old in both]
    only_here = {row.row_index for key, row in here.items() if key not in there}
    only_there = {row.row_index for key, row in there.items() if key not in here}
    changed = only_here & only_there
    return Matched(pairs, len(only_here - changed), len(only_there - changed), len(changed))


def matched_by_run(new: Mapping[RunId, bool], old: Mapping[RunId, bool]) -> Matched:
    """Match the verdicts on the same rollouts, run by run."""
    rows: dict[int, tuple[list[bool], list[bool]]] = {}
    for run in sorted(new.keys() & old.keys()):
        here, there = rows.setdefault(run.row, ([], []))
        here.append(new[run])
        there.append(old[run])
    return Matched([Pair(row, row, here, there) for row, (here, there) in rows.items()])


def changed_rows(pairs: Iterable[Pair], against: Against) -> list[ChangedRow]:
    """Return the rows whose share of passed runs changed: the worse ones first, and the larger changes before others.

    >>> pairs = [Pair(0, 0, [True], [False]), Pair(1, 3, [True, False], [True, True]), Pair(2, 2, [False], [True])]
    >>> [(row.row_index, row.earlier_row_index, row.rise) for row in changed_rows(pairs, "baseline")]
    [(2, 2, -1.0), (1, 3, -0.5), (0, 0, 1.0)]
    """
    changed = []
    for pair in pairs:
        new, old = passes(pair.new), passes(pair.old)
        rise = new.passed * old.measured - old.passed * new.measured  # 0 without measured runs
        if rise:
            changed.append(
                ChangedRow(
                    against=against,
                    change="better" if rise > 0 else "worse",
                    row_index=pair.row_index,
                    passed=new.passed,
                    measured=new.measured,
                    earlier_row_index=pair.old_index,
                    earlier_passed=old.passed,
                    earlier_measured=old.measured,
                )
            )
    return sorted(changed, key=lambda row: (row.change == "better", -abs(row.rise), row.row_index))


def passes(runs: Runs) -> Passes:
    """Return how many runs of a row passed."""
    return Passes(sum(passed is True for passed in runs), sum(passed is not None for passed in runs))


def share(runs: Runs, fill: bool | None = None) -> float | None:
    """Return the share of runs that passed, unmeasured ones counted as `fill` or left out; None without any run."""
    counted = [fill if passed is None else passed for passed in runs if passed is not None or fill is not None]
    return sum(map(bool, counted)) / len(counted) if counted else None


def shares(
    pairs: Iterable[Pair], new_fill: bool | None = None, old_fill: bool | None = None
) -> tuple[list[float], list[float]]:
    """Return the shares, new and old, of the rows that have both."""
    rows = [(share(pair.new, new_fill), share(pair.old, old_fill)) for pair in pairs]
    both = [(new, old) for new, old in rows if new is not None and old is not None]
    return [new for new, _ in both], [old for _, old in both]


def by_content(rows: Iterable[RowRuns]) -> dict[tuple[str, int], RowRuns]:
    """Return rows by their content and their number among rows with the same content."""
    seen: Counter[str] = Counter()
    numbered = {}
    for row in rows:
        numbered[row.digest, seen[row.digest]] = row
        seen[row.digest] += 1
    return numbered


Meaning = Literal["regression", "within", "improvement", "noise"]


class RowComparison(Struct, frozen=True):
    """The rows of two eval runs, new and old: `paired` compares those that both sides measured, None without any.

    `new` and `old` are the shares of their measured runs that passed.
    """

    matched: Matched
    new: Sequence[float]
    old: Sequence[float]
    paired: Paired | None

    @property
    def n_rows(self) -> int:
        """The number of rows that both sides measured."""
        return len(self.new)

    @property
    def n_unmeasured(self) -> int:
        """The number of rows that both sides have, and not both measured."""
        return len(self.matched.pairs) - self.n_rows

    @property
    def n_not_compared(self) -> int:
        """The number of rows that only one side has, or that were not measured on both."""
        return self.matched.n_unmatched + self.n_unmeasured

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of rows that are published of each comparison."""
        found = self.paired
        return {"rows": self.n_rows, "better": found.better if found else 0, "worse": found.worse if found else 0}

    @property
    def changes(self) -> dict[str, Any]:
        """The members of `Changes`."""
        found = self.paired
        test = {"difference": found and found.difference, "p_value": found and found.p, "test": found and found.test}
        return {**self.counts, **test}

    def changed(self, against: Against) -> list[ChangedRow]:
        return changed_rows(self.matched.pairs, against)


def compare(rows: Matched) -> RowComparison:
    """Compare the rows that both sides measured."""
    new, old = shares(rows.pairs)
    return RowComparison(rows, new, old, stats.compare(new, old) if new else None)


# -- comparisons as they are published ---------------------------------------------------------------------


class Changes(Struct, frozen=True, kw_only=True):
    """The number of rows that both sides measured, and those of them that changed."""

    rows: Count
    better: Count
    worse: Count
    difference: float | None
    p_value: Share | None
    test: str | None


class LastRun(Changes, frozen=True):
    """The comparison with the last run of the plan. `unmatched` rows are only on one side, or not measured on both."""

    run: str
    started_at: Moment
    unmatched: Count


def against_last_run(rows: RowComparison, run: str, started_at: str) -> LastRun:
    return LastRun(run=run, started_at=started_at, unmatched=rows.n_not_compared, **rows.changes)


class AgainstBaseline(Changes, frozen=True):
    """The comparison with the baseline, a model or a results file: of the compared `rows`, and the `unmeasured` ones.

    `started_at` is the time when the baseline ran, None for a model that runs side by side. The pass rates are the
    means over the compared rows. `p_adjusted` is p among all `evals_compared` in the session. `differs` names the
    settings that differ.
    """

    baseline: str
    started_at: Moment | None
    unmeasured: Count
    added: Count
    removed: Count
    changed: Count
    pass_rate: Share | None
    baseline_pass_rate: Share | None
    difference_interval: Interval | None
    p_adjusted: Share | None
    evals_compared: Positive
    regression: bool
    differs: tuple[str, ...]

    @property
    def meaning(self) -> Meaning:
        """The meaning of the difference between the measured rows: "noise" if chance alone makes it as large."""
        if self.difference is None or self.p_adjusted is None or self.p_adjusted >= ALPHA:
            return "noise"
        if self.difference > 0:
            return "improvement"
        return "regression" if self.regression else "within"


# -- the comparison with a baseline ------------------------------------------------------------------------


class BaselineComparison(Struct, frozen=True):
    """The comparison with a baseline: its rows, and what is published of it.

    `allowed` is the loss that is not a regression. `stopped` is the reason why the baseline's model was stopped early.
    """

    rows: RowComparison
    found: AgainstBaseline
    allowed: float
    stopped: str | None

    def among(self, n_evals: int, p: float) -> BaselineComparison:
        """Return this comparison as one of `n_evals`, with its corrected p."""
        regression = p < ALPHA and _is_beyond(self.found.difference or 0.0, self.allowed)
        found = replace(self.found, evals_compared=n_evals, p_adjusted=p, regression=regression)
        return replace(self, found=found)


def against_baseline(
    name: str,
    matched: Matched,
    *,
    started_at: str | None = None,
    allowed: float = 0.0,
    differs: tuple[str, ...] = (),
    stopped: str | None = None,
) -> BaselineComparison:
    """Compare the rows with those of a baseline."""
    rows = compare(matched)
    found = AgainstBaseline(
        baseline=name,
        started_at=started_at,
        unmeasured=rows.n_unmeasured,
        added=matched.added,
        removed=matched.removed,
        changed=matched.changed,
        pass_rate=stats.mean(rows.new) if rows.new else None,
        baseline_pass_rate=stats.mean(rows.old) if rows.old else None,
        difference_interval=None if rows.paired is None else rows.paired.interval,
        p_adjusted=None,
        evals_compared=1,
        regression=False,
        differs=differs,
        **rows.changes,
    )
    made = BaselineComparison(rows, found, allowed, stopped)
    return made if rows.paired is None else made.among(1, rows.paired.p)


def decide(rule: GateRule, compared: BaselineComparison) -> Verdict:
    """Return the verdict of `max_regression` on a complete selection.

    It fails if the loss is a regression and holds if it is not, both only if unmeasured runs cannot change that. It is
    not measured, whatever the loss, with too few rows for any p below 0.05.
    """
    title, found, paired = title_of(rule), compared.found, compared.rows.paired
    if paired is None or found.p_adjusted is None:
        return verdict_without_value(rule, "not measured", nothing_text(found, compared.stopped))
    change = f"{difference(paired.difference)}: {meaning_text(found, compared.allowed)}"
    text = f"{rates_text(found)}; {change} (p {p_value(found.p_adjusted)})"
    power = power_of(paired, compared.allowed)
    verdict = Verdict(title, "holds", text, paired.difference, rule, paired.difference, power)
    pairs = compared.rows.matched.pairs
    if found.unmeasured or any(None in (*pair.new, *pair.old) for pair in pairs):
        times = found.p_adjusted / paired.p if paired.p else 1.0  # by Holm's correction
        n = sum((*pair.new, *pair.old).count(None) for pair in pairs)
        worst_and_best = [stats.paired_test(*shares(pairs, fill, not fill)) for fill in (False, True)]
        cases = {_is_beyond(case.difference, compared.allowed) and case.p * times < ALPHA for case in worst_and_best}
        if len(cases | {found.regression}) > 1:
            return replace(
                verdict, state="not measured", text=f"{text}; {plural(n, 'unmeasured run')} could change that"
            )
    if found.regression:
        return replace(verdict, state="fails")
    if (least := least_p_of(paired.n_rows, found.evals_compared)) is not None:
        few = f"{plural(paired.n_rows, 'row')} cannot show a regression: p is at least {least:.2g}"
        return replace(verdict, state="not measured", text=f"{text}; {few}")
    return verdict


def least_p_of(n_rows: int, n_tests: int = 1) -> float | None:
    """Return the smallest p, corrected for all tests, that so few rows can give; None if one below `ALPHA` is possible.

    It is that of rows which all changed in the same direction.
    """
    least = min(1.0, n_tests * 2.0 ** (1 - n_rows))
    return least if least >= ALPHA else None


def nothing_text(found: AgainstBaseline, stopped: str | None) -> str:
    """Return why no row is compared. `stopped` is the reason why the baseline's model was stopped early."""
    if not found.rows + found.unmeasured:
        return "the baseline has none of these rows"
    return f"no row was measured on both sides{f' ({stopped})' if stopped is not None else ''}"


def rates_text(found: AgainstBaseline) -> str:
    """Return both pass rates over the rows that both sides measured."""
    rates = f"pass rate {score(found.pass_rate)}, baseline {score(found.baseline_pass_rate)}"
    return f"{rates}, same {plural(found.rows, 'row')}"


def meaning_text(found: AgainstBaseline, allowed: float) -> str:
    """Return the meaning in words. Only a regression is called one. `allowed` is the loss that is none."""
    match found.meaning:
        case "regression":
            return "a regression"
        case "within":
            return f"lower, but within the {allowed:g} that max_regression allows"
        case "improvement":
            return "an improvement"
    return chance_text(found.difference)


def chance_text(difference: float | None) -> str:
    """Return what a difference means that no test can tell from chance."""
    return "may be chance" if difference else "no difference"


def _is_beyond(change: float, allowed: float) -> bool:
    """True for a loss of more than `allowed`; a difference in the last digits of a float does not count."""
    return change < -allowed and not math.isclose(change, -allowed, rel_tol=1e-9, abs_tol=1e-12)


def power_of(paired: Paired, allowed: float = 0.0) -> Power | None:
    """Return the chance to notice a loss of `DROP` beyond what is allowed, from the spread of the rows.

    None if all rows have the same difference.
    """
    if not paired.se:
        return None
    loss, z = allowed + DROP, stats.normal_quantile(1 - ALPHA / 2)
    chance = stats.chance_below(loss - max(allowed, z * paired.se), paired.se)
    enough = stats.normal_quantile(stats.POWER)
    needed = max(enough * paired.se / DROP, (z + enough) * paired.se / loss)
    return Power(chance, math.ceil(paired.n_rows * needed**2))


# -- the entries of a config -------------------------------------------------------------------------------

Direction = Literal["better", "worse", "chance"]


def direction(difference: float, p: float) -> Direction:
    """Return what a difference means on which no gate decides."""
    return "chance" if p >= ALPHA else "better" if difference > 0 else "worse"


LEAST_COMMON = 0.5
"""The share of the smaller entry's rows that the other one must have too, for them to be compared row by row."""


class EntryDifference(Struct, frozen=True):
    """The pass rate of an entry minus that of the first one, each the mean over rows of the share of runs that passed.

    If `paired`, both have measured the same `rows`, of which `better` rose and `worse` fell. Otherwise the entry has
    measured that many, and the first one `first_rows`. `left_out` counts rows that only one of them has, or that were
    not measured. `p_value` is the two-sided chance, by `test`, of a difference at least as large between entries that
    are alike, and `p_adjusted` the same among all entries.
    """

    paired: bool
    rows: int
    first_rows: int
    left_out: int
    better: int
    worse: int
    difference: float
    interval: Interval
    p_value: float
    p_adjusted: float
    test: str
    meaning: Direction = "chance"

    def adjusted(self, p: float) -> EntryDifference:
        """Return this difference with p among all entries, and what it then means."""
        return replace(self, p_adjusted=p, meaning=direction(self.difference, p))


def compared_with_first(
    first: Sequence[RowRuns] | None, others: Sequence[Sequence[RowRuns] | None]
) -> list[EntryDifference | None]:
    """Return the difference of each other entry to the first.

    None for an entry without a measured row, and for one that is None because its rows must not be compared.
    """
    found = [None if first is None or rows is None else _difference(rows, first) for rows in others]
    adjusted = iter(stats.holm([each.p_value for each in found if each is not None]))
    return [None if each is None else each.adjusted(next(adjusted)) for each in found]


def least_p(differences: Sequence[EntryDifference]) -> float | None:
    """Return the smallest corrected p that so few rows can give, None if one below `ALPHA` is possible."""
    if not differences or not all(each.paired for each in differences):
        return None
    return least_p_of(max(each.rows for each in differences), len(differences))


def _difference(rows: Sequence[RowRuns], first: Sequence[RowRuns]) -> EntryDifference | None:
    both = matched(rows, first)
    is_paired = len(both.pairs) >= LEAST_COMMON * min(len(rows), len(first))
    if is_paired:
        new, old = shares(both.pairs)
        n_left_out = both.n_unmatched + len(both.pairs) - len(new)
    else:
        new, old = ([passed for row in side if (passed := share(row.runs)) is not None] for side in (rows, first))
        n_left_out = len(rows) + len(first) - len(new) - len(old)
    if not new or not old:
        return None
    found = stats.compare(new, old) if is_paired else stats.compare_unpaired(new, old)
    better, worse = (found.better, found.worse) if isinstance(found, Paired) else (0, 0)
    return EntryDifference(
        is_paired, len(new), len(old), n_left_out, better, worse, found.difference, found.interval, found.p, found.p,
        found.test,
    )  # fmt: skip
