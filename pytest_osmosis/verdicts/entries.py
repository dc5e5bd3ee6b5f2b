"""Comparisons of the entries of a config with the first one.

An entry whose rows are those of the first is compared row by row; rows are the same if their content is. Otherwise both
are taken as samples of different rows. Each comparison is a test of its own, so p is corrected by Holm's method: the
chance that any difference between entries that are alike seems real stays below 5%, however many entries there are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

from pytest_osmosis import stats
from pytest_osmosis.stats import ALPHA, Interval
from pytest_osmosis.verdicts.comparison import RowRuns, matched, share, shares

LEAST_COMMON = 0.5
"""The share of the smaller entry's rows that the other one must have too, for them to be compared row by row."""


@dataclass(frozen=True, slots=True)
class EntryDifference:
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

    @property
    def meaning(self) -> Literal["better", "worse", "chance"]:
        if self.p_adjusted >= ALPHA:
            return "chance"
        return "better" if self.difference > 0 else "worse"

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "interval": self.interval._asdict(), "meaning": self.meaning}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> EntryDifference:
        known = {each.name: data[each.name] for each in fields(cls)}  # a later version may have more
        return cls(**{**known, "interval": Interval.from_json(data["interval"])})


def compared_with_first(
    first: Sequence[RowRuns] | None, others: Sequence[Sequence[RowRuns] | None]
) -> list[EntryDifference | None]:
    """Return the difference of each other entry to the first.

    None for an entry without a measured row, and for one that is None because its rows must not be compared.
    """
    found = [None if first is None or rows is None else _difference(rows, first) for rows in others]
    adjusted = iter(stats.holm([each.p_value for each in found if each is not None]))
    return [None if each is None else replace(each, p_adjusted=next(adjusted)) for each in found]


def least_p(differences: Sequence[EntryDifference]) -> float | None:
    """Return the smallest corrected p that so few rows can give, None if one below `ALPHA` is possible."""
    if not differences or not all(each.paired for each in differences):
        return None
    least = min(1.0, len(differences) * 2.0 ** (1 - max(each.rows for each in differences)))
    return least if least >= ALPHA else None


def _difference(rows: Sequence[RowRuns], first: Sequence[RowRuns]) -> EntryDifference | None:
    both = matched(rows, first)
    if len(both.pairs) < LEAST_COMMON * min(len(rows), len(first)):
        return _of_other_rows(rows, first)
    new, old = shares(both.pairs)
    if not new:
        return None
    found = stats.compare(new, old)
    n_left_out = both.n_unmatched + len(both.pairs) - len(new)
    return EntryDifference(
        True, found.n_rows, found.n_rows, n_left_out, found.better, found.worse, found.difference, found.interval,
        found.p, found.p, found.test,
    )  # fmt: skip


def _of_other_rows(rows: Sequence[RowRuns], first: Sequence[RowRuns]) -> EntryDifference | None:
    new, old = ([passed for row in side if (passed := share(row.runs)) is not None] for side in (rows, first))
    if not new or not old:
        return None
    found = stats.compare_unpaired(new, old)
    n_left_out = len(rows) + len(first) - len(new) - len(old)
    return EntryDifference(
        False, found.n_new, found.n_old, n_left_out, 0, 0, found.difference, found.interval, found.p, found.p,
        found.test,
    )  # fmt: skip
