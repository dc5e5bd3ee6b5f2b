"""The list of a workspace's eval runs, and the table over evals that ran together, as the front end reads them.

Only heads of results are read, and each only once: an entry is kept until its eval run has another version, which is
so if anything that the dashboard shows may have changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from pytest_osmosis.addons.viewer.run_entry import (
    RolloutCounter,
    RunEntry,
    entry_of,
    listing_order,
    run_entry,
    with_figures,
)
from pytest_osmosis.addons.viewer.shapes import EntryRow, RunsPage
from pytest_osmosis.addons.viewer.stored_results import StoredResults
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.formats.codec import decode, encode
from pytest_osmosis.record.manifest import read_manifest
from pytest_osmosis.record.run_directory import RunDirectory, holder_of
from pytest_osmosis.report.statistics import interval_text
from pytest_osmosis.results.entry_table import EntryFigures, EntryTable
from pytest_osmosis.results.read import SummaryFields, read_head
from pytest_osmosis.text.numbers import difference, p_value, plural
from pytest_osmosis.verdicts.comparison import EntryDifference, chance_text

_State = tuple[int, int, int, int]
"""The times, the size and the number of a file."""
_WATCHED = ("manifest", "journal", "results", "lock", "submission")
RunVersion = tuple[object, ...]
"""The states of the files, None for those that are missing, and the process that writes them."""


def entry_rows(table: EntryTable, runs: Iterable[RunEntry]) -> list[EntryRow]:
    """Return the rows of the table, the first entry first; without a pass rate for those of `runs` that have none."""
    no_rate = {row.name for row in runs if row.pass_rate is None}
    rows = [_entry_row(entry, is_first=entry.name == table.first) for entry in table.entries]
    return [
        {**row, "pass_rate": None, "pass_rate_interval": None, "mean": None} if row["run"] in no_rate else row
        for row in rows
    ]


def _entry_row(entry: EntryFigures, *, is_first: bool) -> EntryRow:
    row: EntryRow = encode(entry)
    return {**row, "finding": "" if is_first and entry.reason is None else _finding(entry)}


def _finding(entry: EntryFigures) -> str:
    found = entry.difference
    if found is None:
        return f"not compared: {entry.reason}"
    test = f"95% interval {interval_text(found.interval, difference)}, p {p_value(found.p_adjusted)}"
    meaning = chance_text(found.difference) if found.meaning == "chance" else found.meaning
    return f"{meaning}: {difference(found.difference)} {_over(found)} ({test})"


def _over(found: EntryDifference) -> str:
    if found.paired:
        return f"over {plural(found.rows, 'row')}"
    return f"over {plural(found.rows, 'row')} that are not the {plural(found.first_rows, 'row')} of the first"


def run_version(directory: RunDirectory) -> RunVersion:
    """Return the version of an eval run's files, of which none is read whole."""
    return (*(_state(getattr(directory, name)) for name in _WATCHED), holder_of(directory))


def _state(path: Path) -> _State | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def row_of(stored: StoredResults) -> RunEntry:
    """Return the line of an eval run that was read.

    Without results of its last session there is no pass rate: that of the runs which ended first would mislead.
    """
    manifest, results = stored.run.manifest, stored.results
    entry = with_figures(
        entry_of(stored.run.directory, manifest, stored.lifecycle),
        results.description.name,
        results.partial,
        decode(stored.document["summary"], SummaryFields),
        {**(manifest.git or {}), **results.provenance},
        results.verdicts,
    )
    if not stored.is_from_journal:
        return entry
    ended, selected = len(stored.records), manifest.selected.n_rollouts
    return replace(entry, pass_rate=None, pass_rate_interval=None, partial=False, ended=ended, selected=selected)


class _Listed(NamedTuple):
    """An eval run in the list, and the table over the evals with which it ran."""

    row: RunEntry
    table: EntryTable | None


class RunList:
    """Lists eval runs again and again."""

    def __init__(self) -> None:
        self._kept: dict[Path, tuple[RunVersion, _Listed]] = {}
        self._rollouts = RolloutCounter()

    def page(self, workspace: str, folders: Sequence[Path]) -> RunsPage:
        """Return the page on the eval runs in `folders`. `workspace` is the name that it shows."""
        listed = [self._listed(folder) for folder in sorted(folders, key=listing_order)]
        self._kept = {folder: kept for folder, kept in self._kept.items() if folder in {*folders}}
        return RunsPage(workspace=workspace, runs=[each.row for each in listed], tables=_tables(listed))

    def row(self, folder: Path) -> RunEntry:
        """Return the entry of one eval run."""
        return self._listed(folder).row

    def _listed(self, folder: Path) -> _Listed:
        directory = RunDirectory(folder)
        version = run_version(directory)
        kept = self._kept.get(folder)
        if kept is not None and kept[0] == version:
            return kept[1]
        listed = _Listed(run_entry(folder, self._rollouts.count), _table_of(directory))
        self._kept[folder] = (version, listed)
        return listed


def _tables(listed: Sequence[_Listed]) -> list[list[EntryRow]]:
    """Return each table over evals that ran together, if one of its eval runs is listed."""
    tables: dict[tuple[str, ...], EntryTable] = {}
    for each in listed:
        if each.table is not None:
            tables.setdefault((each.table.config, *(entry.run for entry in each.table.entries)), each.table)
    rows = [each.row for each in listed]
    return [entry_rows(table, rows) for table in tables.values()]


def _table_of(directory: RunDirectory) -> EntryTable | None:
    """Return the table in the results of an eval run, None if its config has no other eval, or it cannot be read."""
    try:
        if read_manifest(directory.manifest).entry is None or not something_at(directory.results):
            return None
        return read_head(directory.results).comparison
    except OsmosisError:
        return None
