"""The list of a workspace's eval runs, as the front end reads it.

Only heads of results are read, and each only once: an entry is kept until its eval run has another version.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import listing_order
from pytest_osmosis.record.manifest import read_manifest
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.entry_table import EntryPlace, EntryTable
from pytest_osmosis.results.read import read_head
from pytest_osmosis.results.run_entry import RolloutCounter, run_entry
from pytest_osmosis.viewer.entries import entry_rows
from pytest_osmosis.viewer.run_row import run_row
from pytest_osmosis.viewer.run_version import RunVersion, run_version
from pytest_osmosis.viewer.shapes import EntryRow, RunRow, RunsPage


class _Listed(NamedTuple):
    """An eval run in the list, and the table over the evals with which it ran."""

    row: RunRow
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
        return RunsPage(
            workspace=workspace,
            runs=[each.row for each in listed],
            tables=_tables(listed),
        )

    def row(self, folder: Path) -> RunRow:
        """Return the entry of one eval run."""
        return self._listed(folder).row

    def _listed(self, folder: Path) -> _Listed:
        directory = RunDirectory(folder)
        version = run_version(directory)
        kept = self._kept.get(folder)
        if kept is not None and kept[0] == version:
            return kept[1]
        listed = _Listed(run_row(run_entry(folder, self._rollouts.count)), _table_of(directory))
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
        place = EntryPlace.from_json(read_head(directory.results).comparison)
    except (OsmosisError, KeyError, TypeError, AttributeError):
        return None
    return None if place is None else place.table
