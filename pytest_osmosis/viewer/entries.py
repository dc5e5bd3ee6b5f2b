"""The table over evals that ran together, for the front end: the figures of each, and its finding in words."""

from __future__ import annotations

from collections.abc import Iterable

from pytest_osmosis.results.entry_table import EntryFigures, EntryTable
from pytest_osmosis.text.numbers import difference, p_value, plural
from pytest_osmosis.verdicts.entries import EntryDifference
from pytest_osmosis.viewer.shapes import EntryRow, RunRow, shaped

_MEANING = {"better": "better", "worse": "worse", "chance": "no more than chance"}


def entry_rows(table: EntryTable, runs: Iterable[RunRow]) -> list[EntryRow]:
    """Return the rows of the table, the first entry first; without a pass rate for those of `runs` that have none."""
    no_rate = {row["name"] for row in runs if row["pass_rate"] is None}
    rows = [_row(entry, is_first=entry.name == table.first) for entry in table.entries]
    return [_without_rate(row) if row["run"] in no_rate else row for row in rows]


def _without_rate(row: EntryRow) -> EntryRow:
    return {**row, "pass_rate": None, "pass_rate_interval": None, "mean": None}


def _row(entry: EntryFigures, *, is_first: bool) -> EntryRow:
    interval = entry.pass_rate_interval
    return shaped(
        EntryRow,
        entry,
        pass_rate_interval=None if interval is None else interval._asdict(),
        finding="" if is_first and entry.reason is None else _finding(entry),
    )


def _finding(entry: EntryFigures) -> str:
    found = entry.difference
    if found is None:
        return f"not compared: {entry.reason}"
    interval = f"{difference(found.interval.low)} to {difference(found.interval.high)}"
    test = f"95% interval {interval}, p {p_value(found.p_adjusted)}"
    return f"{_MEANING[found.meaning]}: {difference(found.difference)} {_over(found)} ({test})"


def _over(found: EntryDifference) -> str:
    if found.paired:
        return f"over {plural(found.rows, 'row')}"
    return f"over {plural(found.rows, 'row')} that are not the {plural(found.first_rows, 'row')} of the first"
