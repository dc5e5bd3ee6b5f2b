"""An eval against its baseline, row by row: the same rows, matched by their content, their runs averaged first.

A regression is a loss of pass rate beyond what the gate `max_regression` allows (nothing, without that gate) that
chance alone would not make: p < 0.05 of a two-sided paired test. Where several evals of a session are compared, p is
Holm's, so that one look in twenty stays one in twenty however many are looked at.

Unmeasured runs are counted for and against: what then is a regression in one case and none in another is not measured.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

from pytest_osmosis import stats
from pytest_osmosis.config.tables import GateRule
from pytest_osmosis.stats import ALPHA, Paired
from pytest_osmosis.text.numbers import difference, p_value, plural, score
from pytest_osmosis.verdicts.gates import DROP, Power, Verdict, title_of
from pytest_osmosis.verdicts.previous_run import by_content

Runs = Sequence[bool | None]
"""Whether each run of a row passed; None where it was not measured. Those that their grader took out are left out."""

Meaning = Literal["regression", "within", "improvement", "noise"]


class RowRuns(NamedTuple):
    """The runs of a row: its index, and the digest of its content."""

    row_index: int
    digest: str
    runs: Runs


class Pair(NamedTuple):
    """The runs of a row here and of the same row of the baseline."""

    new: Runs
    old: Runs


@dataclass(frozen=True, slots=True)
class Matched:
    """Rows that both have, and how many only one has.

    A row is `changed` where another content stands at its index in the baseline, `added` where there is none, `removed`
    where only the baseline has one.
    """

    pairs: Sequence[Pair]
    added: int = 0
    removed: int = 0
    changed: int = 0


def matched(new: Sequence[RowRuns], old: Sequence[RowRuns]) -> Matched:
    """Rows with the same content; of several the first is matched with the first, and so on."""
    here, there = by_content(new), by_content(old)
    pairs = [Pair(row.runs, there[key].runs) for key, row in here.items() if key in there]
    only_here = {row.row_index for key, row in here.items() if key not in there}
    only_there = {row.row_index for key, row in there.items() if key not in here}
    changed = only_here & only_there
    return Matched(pairs, len(only_here - changed), len(only_there - changed), len(changed))


def beside(new: Sequence[RowRuns], old: Sequence[RowRuns]) -> Matched:
    """The same of two models that were asked the same rows: each is matched with itself."""
    there = {row.row_index: row.runs for row in old}
    return Matched([Pair(row.runs, there[row.row_index]) for row in new if row.row_index in there])


@dataclass(frozen=True, slots=True)
class Comparison:
    """What became of the pass rate against the baseline `name`: a model side by side, or the results in a file.

    `started_at` is when the baseline was run, None where that is now. `paired` compares the rows that both have
    measured, None where there are none; `new_rate` and `old_rate` are the means of their pass rates. `p` is that of
    `paired`, adjusted for `n_evals` that were compared in the session. `allowed` is the loss that is no regression.
    `differs` are settings that differ, in words. `stopped` is why the baseline's model was asked no more, None where it
    was.
    """

    name: str
    started_at: str | None
    matched: Matched
    paired: Paired | None
    new_rate: float | None = None
    old_rate: float | None = None
    p: float = 1.0
    n_evals: int = 1
    allowed: float = 0.0
    differs: tuple[str, ...] = ()
    stopped: str | None = None

    @property
    def n_unmeasured(self) -> int:
        """Rows that both have, and not both have measured."""
        return len(self.matched.pairs) - (self.paired.n_rows if self.paired is not None else 0)

    @property
    def meaning(self) -> Meaning:
        """What the difference between the measured rows is; "noise" where chance alone makes as large ones."""
        if self.paired is None or self.p >= ALPHA:
            return "noise"
        if self.paired.difference > 0:
            return "improvement"
        return "regression" if _is_beyond(self.paired.difference, self.allowed) else "within"

    def among(self, n_evals: int, p: float) -> Comparison:
        """The same, as one of `n_evals` that were looked at, with the p that Holm gives it."""
        return replace(self, n_evals=n_evals, p=p)

    def to_json(self) -> dict[str, Any]:
        """The published object."""
        found = self.paired
        return {
            "baseline": self.name,
            "started_at": self.started_at,
            "rows": 0 if found is None else found.n_rows,
            "unmeasured": self.n_unmeasured,
            "added": self.matched.added,
            "removed": self.matched.removed,
            "changed": self.matched.changed,
            "pass_rate": self.new_rate,
            "baseline_pass_rate": self.old_rate,
            "better": 0 if found is None else found.better,
            "worse": 0 if found is None else found.worse,
            "difference": None if found is None else found.difference,
            "difference_interval": None if found is None or found.interval is None else found.interval._asdict(),
            "p_value": None if found is None else found.p,
            "p_adjusted": None if found is None else self.p,
            "evals_compared": self.n_evals,
            "test": None if found is None else found.test,
            "regression": self.meaning == "regression",
            "differs": list(self.differs),
        }


def compare(
    name: str,
    found: Matched,
    *,
    started_at: str | None = None,
    allowed: float = 0.0,
    differs: Sequence[str] = (),
    stopped: str | None = None,
) -> Comparison:
    """The comparison of the rows that both have measured, by the shares of their measured runs that passed."""
    new, old = _shares(found.pairs, None, None)
    empty = Comparison(name, started_at, found, None, allowed=allowed, differs=tuple(differs), stopped=stopped)
    if not new:
        return empty
    paired = stats.compare(new, old)
    return replace(empty, paired=paired, new_rate=stats.mean(new), old_rate=stats.mean(old), p=paired.p)


def decide(rule: GateRule, found: Comparison) -> Verdict:
    """The verdict of `max_regression` on a complete selection.

    Fails where the loss is a regression, holds where it is none, both whatever the unmeasured runs would have been.
    With too few rows for any p below 0.05 a loss beyond what is allowed is not measured.
    """
    title, paired = title_of(rule), found.paired
    if paired is None:
        return Verdict(title, "not measured", nothing_text(found), rule=rule)
    text = verdict_text(found)
    verdict = Verdict(title, "holds", text, paired.difference, rule, paired.difference, _power(found, paired))
    if found.n_unmeasured or any(None in (*pair.new, *pair.old) for pair in found.matched.pairs):
        n = sum((*pair.new, *pair.old).count(None) for pair in found.matched.pairs)
        cases = {_is_regression(found, case) for case in _completed(found.matched.pairs)}
        if len(cases | {found.meaning == "regression"}) > 1:
            return replace(
                verdict, state="not measured", text=f"{text}; {plural(n, 'unmeasured run')} could change that"
            )
    if found.meaning == "regression":
        return replace(verdict, state="fails")
    least = 2.0 ** (1 - paired.n_rows) * _times(found)
    if _is_beyond(paired.difference, found.allowed) and least >= ALPHA:
        few = f"{plural(paired.n_rows, 'row')} cannot show a regression: p is {least:.2g} at the least"
        return replace(verdict, state="not measured", text=f"{text}; {few}")
    return verdict


def nothing_text(found: Comparison) -> str:
    """Why there is no difference to speak of."""
    if not found.matched.pairs:
        return "no row of the baseline is evaluated here"
    return f"no row was measured on both sides{f' ({found.stopped})' if found.stopped is not None else ''}"


def verdict_text(found: Comparison) -> str:
    """The difference in words, and what it is."""
    assert found.paired is not None
    rates = f"pass rate {score(found.new_rate)}, the baseline's {score(found.old_rate)}"
    rows = plural(found.paired.n_rows, "row")
    return f"{rates}: {difference(found.paired.difference)} over {rows}, p {p_value(found.p)}: {meaning_text(found)}"


def meaning_text(found: Comparison) -> str:
    """What the difference is: the word regression only where it is one."""
    match found.meaning:
        case "regression":
            return "a regression"
        case "within":
            return f"lower, but no more than the {found.allowed:g} that max_regression allows"
        case "improvement":
            return "an improvement"
    return "no more than noise"


def _completed(pairs: Sequence[Pair]) -> list[Paired]:
    """The comparisons with every unmeasured run taken for the worst, and for the best, that it may have been here."""
    return [stats.compare(*_shares(pairs, fill, not fill)) for fill in (False, True)]


def _is_regression(found: Comparison, case: Paired) -> bool:
    return _is_beyond(case.difference, found.allowed) and case.p * _times(found) < ALPHA


def _times(found: Comparison) -> float:
    """By how much p grew as several evals were looked at."""
    return found.p / found.paired.p if found.paired is not None and found.paired.p else 1.0


def _shares(pairs: Sequence[Pair], new_fill: bool | None, old_fill: bool | None) -> tuple[list[float], list[float]]:
    """The shares, here and there, of the rows that have both."""
    rows = [(_share(pair.new, new_fill), _share(pair.old, old_fill)) for pair in pairs]
    both = [(new, old) for new, old in rows if new is not None and old is not None]
    return [new for new, _ in both], [old for _, old in both]


def _share(runs: Runs, fill: bool | None) -> float | None:
    """The share of runs that passed, unmeasured ones taken for `fill`, or left out; None where none is left."""
    known = [fill if passed is None else passed for passed in runs if passed is not None or fill is not None]
    return sum(map(bool, known)) / len(known) if known else None


def _is_beyond(found: float, allowed: float) -> bool:
    """True for a loss of more than what is allowed: 0.02 is no more than 0.02, whatever floats make of a difference."""
    return found < -allowed and not math.isclose(found, -allowed, rel_tol=1e-9, abs_tol=1e-12)


def _power(found: Comparison, paired: Paired) -> Power | None:
    """The chance that a loss of `DROP` beyond what is allowed fails the gate, from the spread that the rows showed."""
    if not paired.se:
        return None
    loss, z = found.allowed + DROP, stats.normal_quantile(1 - ALPHA / 2)
    chance = stats.chance_below(loss - max(found.allowed, z * paired.se), paired.se)
    enough = stats.normal_quantile(stats.POWER)
    needed = max(enough * paired.se / DROP, (z + enough) * paired.se / loss)
    return Power(chance, math.ceil(paired.n_rows * needed**2))
