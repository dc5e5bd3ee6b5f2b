"""The rows that two eval runs have in common, and those of them that pass more or less often than before.

Rows are matched by their content, so a dataset whose rows moved is still compared; models that answered the same rows,
and verdicts on the same rollouts, by row index. The runs of a row count as the share of its measured runs that passed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pytest_osmosis.record.run_id import RunId

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


@dataclass(frozen=True, slots=True)
class ChangedRow:
    """A row that passes more or less often than before; its index was `old_index` then."""

    row_index: int
    old_index: int
    new: Passes
    old: Passes

    @property
    def rise(self) -> float:
        """The rise of the share of runs that passed, negative for a row that is worse."""
        return self.new.passed / self.new.measured - self.old.passed / self.old.measured

    @property
    def is_worse(self) -> bool:
        return self.new.passed * self.old.measured < self.old.passed * self.new.measured


@dataclass(frozen=True, slots=True)
class Matched:
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
    pairs = [_pair(row, there[key]) for key, row in here.items() if key in there]
    only_here = {row.row_index for key, row in here.items() if key not in there}
    only_there = {row.row_index for key, row in there.items() if key not in here}
    changed = only_here & only_there
    return Matched(pairs, len(only_here - changed), len(only_there - changed), len(changed))


def matched_by_index(new: Sequence[RowRuns], old: Sequence[RowRuns]) -> Matched:
    """Match the rows of two models that answered the same rows."""
    there = {row.row_index: row for row in old}
    return Matched([_pair(row, there[row.row_index]) for row in new if row.row_index in there])


def matched_by_run(new: Mapping[RunId, bool], old: Mapping[RunId, bool]) -> Matched:
    """Match the verdicts on the same rollouts, run by run."""
    rows: dict[int, tuple[list[bool], list[bool]]] = {}
    for run in sorted(new.keys() & old.keys()):
        here, there = rows.setdefault(run.row, ([], []))
        here.append(new[run])
        there.append(old[run])
    return Matched([Pair(row, row, here, there) for row, (here, there) in rows.items()])


def changed_rows(pairs: Iterable[Pair]) -> list[ChangedRow]:
    """Return the rows whose share of passed runs changed: the worse ones first, and the larger changes before others.

    >>> pairs = [Pair(0, 0, [True], [False]), Pair(1, 3, [True, False], [True, True]), Pair(2, 2, [False], [True])]
    >>> [(row.row_index, row.old_index, row.rise) for row in changed_rows(pairs)]
    [(2, 2, -1.0), (1, 3, -0.5), (0, 0, 1.0)]
    """
    both = [ChangedRow(row, old_row, passes(new), passes(old)) for row, old_row, new, old in pairs]
    measured = [row for row in both if row.new.measured and row.old.measured]
    changed = [row for row in measured if row.new.passed * row.old.measured != row.old.passed * row.new.measured]
    return sorted(changed, key=lambda row: (not row.is_worse, -abs(row.rise), row.row_index))


def _pair(new: RowRuns, old: RowRuns) -> Pair:
    return Pair(new.row_index, old.row_index, new.runs, old.runs)


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
