"""Slices: the pass rate of the eval's own model over rows with the same value in a column of the dataset."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from pytest_osmosis.record.run_record import RunRecord
from pytest_osmosis.results.results import Results, overall
from pytest_osmosis.stats import Interval
from pytest_osmosis.viewer.dataset_rows import MOST_VALUES, DatasetRows
from pytest_osmosis.viewer.shapes import IntervalShape, SliceShape, SlicesShape

_Group = Callable[[RunRecord], str | None]
"""Returns the value of a run, None if it is in no slice."""


def slices_of(results: Results, dataset: DatasetRows, rows: Sequence[int]) -> list[SlicesShape]:
    """Return the slices by each column of the dataset, and by facts about rollouts that differ. `rows` are all rows."""
    records = [record for record in results.records if record.status not in ("pending", "skipped")]
    places = {row: place for place, row in enumerate(rows)}
    found = []
    for column, group in _columns(dataset.groups):
        parts = _parted(records, group)
        if 2 <= len(parts) <= MOST_VALUES:
            slices = [_slice(results, value, parts[value], places) for value in sorted(parts, key=_order)]
            found.append(SlicesShape(column=column, slices=slices))
    return found


def _columns(groups: Mapping[str, Mapping[int, str]]) -> Iterator[tuple[str, _Group]]:
    for column, values in groups.items():
        yield column, lambda record, values=values: values.get(record.run.row)  # type: ignore[misc]
    yield "finish reason", lambda record: record.finish_reason
    yield "model that answered", lambda record: record.model


def _parted(records: Sequence[RunRecord], group: _Group) -> dict[str, list[RunRecord]]:
    parts: dict[str, list[RunRecord]] = {}
    for record in records:
        value = group(record)
        if value is not None:
            parts.setdefault(value, []).append(record)
    return parts


def _slice(results: Results, value: str, records: Sequence[RunRecord], places: Mapping[int, int]) -> SliceShape:
    """Return a slice. Like that of the whole, its rate is left out while runs are missing that could change it."""
    summary = overall(records, results.pass_rule, results.description.n)
    interval = summary.pass_rate_interval
    has_rate = summary.n_measured > 0 and not results.is_fragment
    return SliceShape(
        value=value,
        rows=sorted({places[record.run.row] for record in records}),
        runs=len(records),
        measured=summary.n_measured,
        passed=sum(map(results.pass_rule.passed, records)),
        pass_rate=summary.pass_rate if has_rate else None,
        pass_rate_interval=_interval(interval) if has_rate and interval is not None else None,
    )


def _interval(interval: Interval) -> IntervalShape:
    return IntervalShape(low=interval.low, high=interval.high, method=interval.method, level=interval.level)


def _order(value: str) -> tuple[int, float, str]:
    """Return the sort key of a value: numbers by size, before texts."""
    try:
        return 0, float(value), value
    except ValueError:
        return 1, 0.0, value
