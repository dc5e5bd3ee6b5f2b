"""Reports on stored eval runs: their pages, how they compare, their histories, and the file with all of them.

Up to `ALL_PAIRS` eval runs are each compared with every other, the earlier one first; more of them only with the first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import combinations, starmap
from pathlib import Path

from pytest_osmosis.addons.viewer.comparing import ComparedRun, PastRun, comparison_page, history_page, past_run_of
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.report_file import Kept, ReportedRun, WrittenReport, write_report
from pytest_osmosis.addons.viewer.run_list import entry_rows
from pytest_osmosis.addons.viewer.shapes import ComparisonPage, EntryRow, HistoryPage, RunsPage
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.report.style import StyledText, dim, warning
from pytest_osmosis.results.entry_table import EntryTable, entry_table
from pytest_osmosis.results.results import Results
from pytest_osmosis.results.stored_results import StoredResults
from pytest_osmosis.text.names import shown
from pytest_osmosis.text.numbers import byte_size, plural
from pytest_osmosis.text.redaction import Redaction

ALL_PAIRS = 6
LARGE = 50_000_000
"""A report of more bytes says how to get a smaller one: hosts refuse large files, and they are slow to send."""


def report(path: Path, runs: Mapping[RunDirectory, Kept], redaction: Redaction) -> WrittenReport:
    """Write a report on eval runs whose directories have different names, with the conversations that each keeps.

    Raises `OsmosisError` if files of an eval run cannot be read, and `OSError` if the report cannot be written.
    """
    read = sorted(starmap(_read, runs.items()), key=lambda each: (each[0].row.started_at or "", each[0].row.name))
    sides = [side for side, _ in read]
    listed: RunsPage = {
        "workspace": ", ".join(dict.fromkeys(each.stored.run.workspace.name for each in sides)),
        "runs": [each.row for each in reversed(sides)],
        "tables": _tables(sides),
    }
    return write_report(path, listed, [run for _, run in read], _comparisons(sides), _histories(sides), redaction)


def report_lines(written: WrittenReport, option: str) -> Iterator[str | StyledText]:
    """Yield where a report is and its size; of a large one also how to get less, by an option or key."""
    holds = plural(written.n_conversations, "conversation")
    yield dim(f"report: {shown(written.path)} ({byte_size(written.size)}, {holds})")
    if written.size > LARGE:
        yield warning(
            f"{byte_size(written.conversations_size)} of it are conversations, and some hosts refuse large files: "
            f"{option}=failed leaves out those of runs that passed, and {option}=none leaves out all"
        )


def _read(directory: RunDirectory, kept: Kept) -> tuple[ComparedRun, ReportedRun]:
    opened = OpenRun(directory)
    opened.read()
    page = opened.page()
    side = ComparedRun(page["head"]["row"], opened.stored, opened.prompts)
    return side, ReportedRun(page, opened.conversation, kept)


def _tables(sides: Sequence[ComparedRun]) -> list[list[EntryRow]]:
    """Return the tables of evals that ran together, and one over all eval runs if none of those holds them all."""
    names = {each.row.name for each in sides}
    tables: dict[tuple[str, ...], EntryTable] = {}
    for each in sides:
        if (place := each.stored.results.among) is not None:
            runs = tuple(entry.run for entry in place.entries)
            if names.issuperset(runs):
                tables[runs] = place
    if len(names) > 1 and not any(names.issubset(runs) for runs in tables):
        named = {each.row.name: found for each in sides if (found := _comparable(each.stored)) is not None}
        if len(named) > 1:
            tables[()] = entry_table("", named)
    return [entry_rows(table, [each.row for each in sides]) for table in tables.values()]


def _comparable(stored: StoredResults) -> Results | None:
    """Return the results of an eval run for a table, None if no run of it has ended."""
    results = stored.results
    if not results.records:
        return None
    name = stored.run.directory.name
    named = replace(results, description=replace(results.description, name=name))
    return replace(named, stopped="its run did not end") if stored.is_from_journal else named


def _comparisons(sides: Sequence[ComparedRun]) -> dict[str, ComparisonPage]:
    pairs = combinations(sides, 2) if len(sides) <= ALL_PAIRS else ((sides[0], other) for other in sides[1:])
    return {f"{a.row.name} {b.row.name}": comparison_page(a, b) for a, b in pairs}


def _histories(sides: Sequence[ComparedRun]) -> dict[str, HistoryPage]:
    """Return the history of each eval, over its eval runs in the report."""
    by_eval: dict[str, list[PastRun]] = {}
    for side in sides:
        past = past_run_of(side.row, side.stored, partial(getattr, side, "prompts"))
        by_eval.setdefault(side.row.eval or side.row.name, []).append(past)
    return {name: history_page(name, runs) for name, runs in by_eval.items()}
