"""Reports on stored eval runs: their pages, how they compare, their histories, and the file with all of them.

Up to `ALL_PAIRS` eval runs are each compared with every other, the earlier one first; more of them only with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.style import StyledText, dim, warning
from pytest_osmosis.results.entry_table import EntryTable, entry_table
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.numbers import byte_size, plural
from pytest_osmosis.text.paths import shown
from pytest_osmosis.text.redaction import Redaction
from pytest_osmosis.viewer.chunks import Kept, ReportedRun
from pytest_osmosis.viewer.comparing import ComparedRun, comparison_page
from pytest_osmosis.viewer.entries import entry_rows
from pytest_osmosis.viewer.history import history_page, past_run_of
from pytest_osmosis.viewer.open_run import OpenRun
from pytest_osmosis.viewer.report_file import WrittenReport, write_report
from pytest_osmosis.viewer.shapes import ComparisonPage, EntryRow, HistoryPage, RunPage, RunsPage

ALL_PAIRS = 6
LARGE = 50_000_000
"""A report of more bytes says how to get a smaller one: hosts refuse large files, and they are slow to send."""


class _Read(NamedTuple):
    """An eval run that was read."""

    open: OpenRun
    page: RunPage
    kept: Kept

    @property
    def name(self) -> str:
        return self.page["head"]["row"]["name"]

    @property
    def stored(self) -> StoredResults:
        return self.open.stored

    def prompts_of(self) -> Mapping[int, str]:
        return self.open.prompts


def report(path: Path, runs: Mapping[RunDirectory, Kept], redaction: Redaction) -> WrittenReport:
    """Write a report on eval runs whose directories have different names, with the conversations that each keeps.

    Raises `OsmosisError` if files of an eval run cannot be read, and `OSError` if the report cannot be written.
    """
    read = [_read(directory, kept) for directory, kept in runs.items()]
    read.sort(key=lambda each: (each.page["head"]["row"]["started_at"] or "", each.name))
    reported = [ReportedRun(each.page, each.open.conversation, each.kept) for each in read]
    return write_report(path, _list(read), reported, dict(_comparisons(read)), _histories(read), redaction)


def report_lines(written: WrittenReport, option: str) -> Iterator[str | StyledText]:
    """Yield where a report is and its size; of a large one also how to get less, by an option or key."""
    holds = plural(written.n_conversations, "conversation")
    yield dim(f"report: {shown(written.path)} ({byte_size(written.size)}, {holds})")
    if written.size > LARGE:
        yield warning(
            f"{byte_size(written.conversations_size)} of it are conversations, and some hosts refuse large files: "
            f"{option}=failed leaves out those of runs that passed, and {option}=none leaves out all"
        )


def _read(directory: RunDirectory, kept: Kept) -> _Read:
    opened = OpenRun(directory)
    opened.read()
    return _Read(opened, opened.page(), kept)


def _list(read: Sequence[_Read]) -> RunsPage:
    """Return the list of a report, the newest eval run first."""
    workspaces = dict.fromkeys(each.stored.run.workspace.name for each in read)
    rows = [each.page["head"]["row"] for each in reversed(read)]
    return {
        "workspace": ", ".join(workspaces),
        "runs": rows,
        "tables": _tables(read),
    }


def _tables(read: Sequence[_Read]) -> list[list[EntryRow]]:
    """Return the tables of evals that ran together, and one over all eval runs if none of those holds them all."""
    names = {each.name for each in read}
    tables: dict[tuple[str, ...], EntryTable] = {}
    for each in read:
        if (place := each.stored.results.among) is not None:
            runs = tuple(entry.run for entry in place.table.entries)
            if names.issuperset(runs):
                tables[runs] = place.table
    if len(names) > 1 and not any(names.issubset(runs) for runs in tables):
        named = {each.name: found for each in read if (found := _comparable(each.stored)) is not None}
        if len(named) > 1:
            tables[()] = entry_table("", named)
    rows = [each.page["head"]["row"] for each in read]
    return [entry_rows(table, rows) for table in tables.values()]


def _comparable(stored: StoredResults) -> Results | None:
    """Return the results of an eval run for a table, None if no run of it has ended."""
    results = stored.results
    if not results.records:
        return None
    name = stored.run.directory.name
    named = replace(results, description=replace(results.description, name=name))
    return replace(named, stopped="its run did not end") if stored.is_from_journal else named


def _comparisons(read: Sequence[_Read]) -> Iterator[tuple[str, ComparisonPage]]:
    sides = [ComparedRun(each.page["head"]["row"], each.stored, each.prompts_of()) for each in read]
    pairs = combinations(sides, 2) if len(sides) <= ALL_PAIRS else ((sides[0], other) for other in sides[1:])
    for a, b in pairs:
        yield f"{a.row['name']} {b.row['name']}", comparison_page(a, b)


def _histories(read: Sequence[_Read]) -> dict[str, HistoryPage]:
    """Return the history of each eval, over its eval runs in the report."""
    by_eval: dict[str, list[_Read]] = {}
    for each in read:
        by_eval.setdefault(each.page["head"]["row"]["eval"] or each.name, []).append(each)
    return {
        eval_name: history_page(
            eval_name,
            [past_run_of(each.page["head"]["row"], each.stored, each.prompts_of) for each in runs],
        )
        for eval_name, runs in by_eval.items()
    }
