"""The agreement of the votes of a judge."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import NO_NOTES, RunRecord
from pytest_osmosis.results.totals import vote_agreements


def voted(row: int, index: int, votes: Any, **scores: float) -> RunRecord:
    notes = NO_NOTES.add({"fields": {"rubric": {"votes": votes}}})
    return RunRecord(RunId(row, index), rolled=True, scored=True, scores=scores, notes=notes)


def test_votes_of_all_runs_are_compared_within_their_runs() -> None:
    rows = {
        0: [voted(0, 0, [1, 1, 1], rubric=1), voted(0, 1, [0, 0, 1], rubric=1 / 3)],
        1: [voted(1, 0, [0, 0], rubric=0)],
    }

    found = vote_agreements(rows, ["rubric"])["rubric"]

    assert found.runs == 3
    assert found.equal == pytest.approx((1 + 1 / 3 + 1) / 3)
    assert found.alpha == pytest.approx(1 - 2 / (2 * 8 / 7 * 2))  # four of the eight votes are 1


def test_single_votes_and_foreign_fields_are_no_votes() -> None:
    rows = {0: [voted(0, 0, [1], rubric=1), voted(0, 1, ["a", "b"], rubric=1), voted(0, 2, [1, 0])]}

    assert vote_agreements(rows, ["rubric"]) == {}
