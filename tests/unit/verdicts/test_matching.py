"""Which rows of two eval runs are the same, and which of them changed."""

from __future__ import annotations

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.verdicts.comparison import (
    Matched,
    Pair,
    RowRuns,
    changed_rows,
    compare,
    matched,
    matched_by_run,
)

YES, NO, NONE = [True], [False], [None]


def rows(*digests: str, first: int = 0) -> list[RowRuns]:
    return [RowRuns(first + index, digest, YES) for index, digest in enumerate(digests)]


def test_rows_are_matched_by_content_in_any_order_and_equal_ones_in_order() -> None:
    new = [RowRuns(0, "a", YES), RowRuns(1, "b", NO)]
    old = [RowRuns(7, "b", YES), RowRuns(9, "a", NO)]

    assert matched(new, old) == Matched([Pair(0, 9, YES, NO), Pair(1, 7, NO, YES)])

    equal = [RowRuns(0, "a", YES), RowRuns(1, "a", NO), RowRuns(2, "a", NO)]
    before = [RowRuns(0, "a", NO), RowRuns(1, "a", YES)]

    found = matched(equal, before)

    assert found.pairs == [Pair(0, 0, YES, NO), Pair(1, 1, NO, YES)]
    assert (found.added, found.removed, found.changed) == (1, 0, 0)


def test_rows_that_only_one_side_has_are_counted() -> None:
    found = matched(rows("a", "b2", "c", "d"), rows("a", "b", "c", first=0) + rows("gone", "away", first=8))

    assert (len(found.pairs), found.added, found.removed, found.changed) == (2, 1, 2, 1)


def test_verdicts_on_the_same_rollouts_are_matched_run_by_run() -> None:
    before = {RunId(0, 0): True, RunId(0, 1): False, RunId(1, 0): False, RunId(2, 0): True, RunId(4, 0): True}
    after = {RunId(0, 0): False, RunId(0, 1): True, RunId(1, 0): True, RunId(2, 0): False, RunId(3, 0): True}

    found = compare(matched_by_run(after, before))

    assert found.paired is not None
    assert (found.n_rows, found.paired.better, found.paired.worse) == (3, 1, 1), "row 0 has as many passes as before"
    assert [(row.row_index, row.change) for row in found.changed("rescored")] == [(2, "worse"), (1, "better")]


def test_the_worst_rows_come_first_and_equal_shares_did_not_change() -> None:
    pairs = [
        Pair(0, 0, [True, True], YES),
        Pair(1, 1, [True, True, False], [False, False]),
        Pair(2, 2, [True, None, False], [True, True, True]),
        Pair(3, 8, NO, YES),
        Pair(4, 4, NO, YES),
        Pair(5, 5, [True] * 3 + [False] * 6, [True, False, False]),
        Pair(6, 6, NONE, YES),
        Pair(7, 7, [], YES),
    ]

    changed = changed_rows(pairs, "last_run")

    assert [(row.row_index, row.earlier_row_index, row.new, row.old) for row in changed] == [
        (3, 8, (0, 1), (1, 1)),
        (4, 4, (0, 1), (1, 1)),
        (2, 2, (1, 2), (3, 3)),
        (1, 1, (2, 3), (0, 2)),
    ]
    assert [row.change for row in changed] == ["worse", "worse", "worse", "better"]
