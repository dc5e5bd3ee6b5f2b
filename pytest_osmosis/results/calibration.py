"""Calibration: the agreement of each score with scores that humans gave to the same rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_osmosis import stats
from pytest_osmosis.record.run_record import RunRecord


@dataclass(frozen=True, slots=True)
class HumanScores:
    """The scores by humans, by row index, and the column that holds them.

    With a `tolerance`, scores that differ by at most that are counted too.
    """

    column: str
    by_row: Mapping[int, float]
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class FunctionCalibration:
    """The agreement of one function's scores. `n_unscored` runs of rows with a human score have none of its scores."""

    agreement: stats.Agreement
    n_unscored: int


@dataclass(frozen=True, slots=True)
class Calibration:
    """The agreement of each function's scores with those of humans. It decides nothing."""

    column: str
    tolerance: float | None
    n_rated: int
    """The number of selected rows with a human score."""
    n_unrated: int
    """The number of selected rows without one."""
    functions: Mapping[str, FunctionCalibration]
    """The agreement by the name of the function; a Grader's is "reward", a judge's "rubric"."""


def calibration(rows: Mapping[int, Sequence[RunRecord]], human: HumanScores, scorers: Iterable[str]) -> Calibration:
    """Return the agreement over the runs of each row. Runs that never ran, or were removed, count nowhere."""
    rated = {row: records for row, records in rows.items() if row in human.by_row}
    return Calibration(
        column=human.column,
        tolerance=human.tolerance,
        n_rated=len(rated),
        n_unrated=len(rows) - len(rated),
        functions={name: _of_function(name, rated, human) for name in scorers},
    )


def _of_function(name: str, rated: Mapping[int, Sequence[RunRecord]], human: HumanScores) -> FunctionCalibration:
    ended = {
        row: [record for record in records if record.status in ("finished", "failed")] for row, records in rated.items()
    }
    scores = {
        row: [record.scores[name] for record in records if record.status == "finished" and name in record.scores]
        for row, records in ended.items()
    }
    n_scored = sum(map(len, scores.values()))
    compared = [stats.RatedRow(human.by_row[row], values) for row, values in scores.items()]
    return FunctionCalibration(stats.agreement(compared, human.tolerance), sum(map(len, ended.values())) - n_scored)
