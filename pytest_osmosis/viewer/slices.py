"""Slices: the pass rate of the eval's own model over rows with the same value in a column of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import cast

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.results import Results, decided_scores
from pytest_osmosis.stats import RunScore, gaffke
from pytest_osmosis.viewer.dataset_rows import MOST_VALUES, DatasetRows
from pytest_osmosis.viewer.shapes import IntervalShape, SliceShape, SlicesShape

_Group = Callable[[RunRecord], str | None]
"""Returns the value of a run, None if it is in no slice."""


_Judged = tuple[RunRecord, RunScore]
"""A run that counts, and what its model's results say of it."""


def slices_of(results: Results, dataset: DatasetRows, rows: Sequence[int]) -> list[SlicesShape]:
    """Return the slices by each column of the dataset, and by facts about rollouts that differ. `rows` are all rows."""
    judged = list(decided_scores(results.records, results.pass_rule))
    places = {row: place for place, row in enumerate(rows)}
    found = []
    for column, group in _columns(dataset.groups):
        parts = _parted(judged, group)
        if 2 <= len(parts) <= MOST_VALUES:
            slices = [
                _slice(value, parts[value], places, has_rate=not results.is_fragment)
                for value in sorted(parts, key=_order)
            ]
            found.append(SlicesShape(column=column, slices=slices))
    return found


def _columns(groups: Mapping[str, Mapping[int, str]]) -> Iterator[tuple[str, _Group]]:
    for column, values in groups.items():
        yield column, lambda record, values=values: values.get(record.run.row)  # type: ignore[misc]
    yield "finish reason", lambda record: record.finish_reason
    yield "model that answered", lambda record: record.model


def _parted(judged: Sequence[_Judged], group: _Group) -> dict[str, list[_Judged]]:
    parts: dict[str, list[_Judged]] = {}
    for each in judged:
        value = group(each[0])
        if value is not None:
            parts.setdefault(value, []).append(each)
    return parts


def _slice(value: str, runs: Sequence[_Judged], places: Mapping[int, int], *, has_rate: bool) -> SliceShape:
    """Return a slice. Like that of the whole, its rate is left out while runs are missing that could change it."""
    by_row: dict[int, list[float]] = {}
    for record, score in runs:
        by_row.setdefault(record.run.row, []).append(float(score.passed))
    measured, passed = (sum(column) for column in zip(*((each.measured, each.passed) for _, each in runs), strict=True))
    has_rate = has_rate and measured > 0
    return SliceShape(
        value=value,
        rows=sorted(places[row] for row in by_row),
        runs=len(runs),
        measured=measured,
        passed=passed,
        pass_rate=passed / len(runs) if has_rate else None,
        pass_rate_interval=cast(IntervalShape, gaffke(list(by_row.values()))._asdict()) if has_rate else None,
    )


def _order(value: str) -> tuple[int, float, str]:
    """Return the sort key of a value: numbers by size, before texts."""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value
