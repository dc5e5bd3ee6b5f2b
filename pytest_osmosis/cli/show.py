"""`pytest-osmosis show`: which eval run and which of its runs the arguments mean, and the page on them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.record.find_run import LATEST, StoredEvalRun, find_run, stored
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_history import RunHistory, read_histories
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.report.message_layout import MOST_CHARS, Shortener
from pytest_osmosis.report.run_page import Listing, page_lines
from pytest_osmosis.report.run_view import RunContext, row_lines, run_lines
from pytest_osmosis.report.show_json import page_json, runs_json
from pytest_osmosis.results.read import read_results
from pytest_osmosis.results.stored_results import cost_of, pass_rule_of, read_stored
from pytest_osmosis.text.lists import listed
from pytest_osmosis.text.paths import shown


@dataclass(frozen=True, slots=True)
class ShowRequest:
    """The arguments of `show`: the eval run, what of it, and how.

    `unit` is None for the page of the eval run. `listing` selects the runs that this page lists. Without `full`, long
    texts are shortened. `columns` is the width of the terminal, None if there is none.
    """

    run: str = LATEST
    unit: Unit | None = None
    listing: Listing = "first"
    full: bool = False
    columns: int | None = None


def show_request(
    run: str, row_run: str | None, row: str | None, *, listing: Listing = "first", **how: Any
) -> ShowRequest:
    """Return what the arguments mean. A single one may name the eval run, or a run of the latest one.

    Raises `OsmosisError` if a run or a row is named twice, or not as one.
    """
    if row_run is None and (_unit(run) is not None or "::" in run):
        run, row_run = _eval_of(run) or LATEST, run if _unit(run) is not None else None
    unit = None if row_run is None else _unit(row_run)
    if row_run is not None and unit is None:
        raise OsmosisError(
            f'"{row_run}": must be a run like row3-run1, a row like row3, or a node id that ends in one of them, '
            "[row3-run1]"
        )
    if row is not None:
        if unit is not None:
            raise OsmosisError(f"--row {row}: {unit} is named too; give one of them")
        unit = _row(row)
    if unit is not None and listing != "first":
        raise OsmosisError(
            f"--{listing}: selects the runs on the page of an eval run, but {unit} is named; leave one out"
        )
    return ShowRequest(run, unit, listing, **how)


def show_lines(folder: Path, request: ShowRequest) -> Iterator[str]:
    """Yield the lines of the page that `request` describes.

    Raises `OsmosisError` if no eval run has that name, its files are not valid, or the run or row is not in it.
    """
    directory = find_run(folder, request.run)
    if request.unit is None:
        yield from page_lines(read_stored(stored(directory)), request.listing, request.columns)
        return
    histories = _histories(directory, request.unit)
    context = _context(directory, request.unit, histories)
    cut = Shortener(None if request.full else MOST_CHARS)
    if isinstance(request.unit, RunId):
        yield from run_lines(histories[0], context, cut)
    else:
        yield from row_lines(request.unit.row, histories, context, cut)


def show_json(folder: Path, request: ShowRequest) -> dict[str, Any]:
    """Return the page that `request` describes as JSON. Raises `OsmosisError` as `show_lines` does."""
    directory = find_run(folder, request.run)
    if request.unit is None:
        return page_json(read_stored(stored(directory)), only_failed=request.listing == "failed")
    return runs_json(read_stored(stored(directory)), _histories(directory, request.unit))


def _unit(text: str) -> Unit | None:
    """Return the run or the row that a text or the end of a node id names."""
    name = text.rpartition("[")[2].removesuffix("]") if text.endswith("]") else text
    return RunId.named(name) or RowId.named(name)


def _row(text: str) -> RowId:
    row = RowId.named(text if text.startswith("row") else f"row{text}")
    if row is None:
        raise OsmosisError(f'--row "{text}": must be the index of a row, like 7')
    return row


def _eval_of(text: str) -> str | None:
    """Return the eval that a node id names, None for what is no node id."""
    head, colons, tail = text.partition("::")
    return (tail.partition("[")[0] or PurePath(head).stem) if colons else None


def _histories(directory: RunDirectory, unit: Unit) -> Sequence[RunHistory]:
    """Return the history of a run, or those of all runs of a row, by both models unless the baseline's was named."""
    read = read_histories(directory.journal, lambda run: run == unit or _is_of_row(run, unit))
    if read.wanted:
        return list(read.wanted.values())
    rows = sorted({run.row for run in read.known})
    there = [str(run) for run in sorted(read.known) if run.row == unit.row]
    if there:
        raise OsmosisError(f"{unit}: not in {shown(directory.path)}; of row {unit.row} it has {listed(there, 10)}")
    has = f"it has {_ranges(rows)}" if rows else "no run of it has begun"
    raise OsmosisError(f"{unit}: not in {shown(directory.path)}; {has}")


def _is_of_row(run: RunId, unit: Unit) -> bool:
    return isinstance(unit, RowId) and run.row == unit.row and (run.is_baseline or not unit.is_baseline)


def _ranges(rows: Sequence[int]) -> str:
    """Return rows in words.

    >>> _ranges([3]), _ranges([0, 1, 2, 7])
    ('row 3', 'rows 0 to 2, 7')
    """
    ends: list[list[int]] = []
    for row in rows:
        if ends and row == ends[-1][1] + 1:
            ends[-1][1] = row
        else:
            ends.append([row, row])
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in ends]
    return f"{'row' if len(rows) == 1 else 'rows'} {listed(parts, 10)}"


def _context(directory: RunDirectory, unit: Unit, histories: Sequence[RunHistory]) -> RunContext:
    run = stored(directory)
    published = None if run.results is None else read_results(run.results)
    rule = pass_rule_of(run, published, histories[0].scorers)
    costs = {each.record.run: cost_of(run, published, each.record) for each in histories}
    line = next((line for row, line in run.manifest.plan.rows() if row == unit.row), None)
    return RunContext(
        directory.name,
        rule,
        {id: cost for id, cost in costs.items() if cost is not None},
        "" if line is None else _place(run, unit, line),
        "" if line is None else _rerun(run, unit),
    )


def _place(run: StoredEvalRun, unit: Unit, line: int) -> str:
    dataset = run.manifest.subject.extra["dataset"]
    return f"row {unit.row} of {dataset}" if run.manifest.environment else f"{dataset}:{line}"


def _rerun(run: StoredEvalRun, unit: Unit) -> str:
    """Return the command that repeats a run, "" if its config is gone, or options changed what it says."""
    plan, path = run.manifest.plan, run.own_config
    if path is None:
        return ""
    if isinstance(unit, RowId) and plan.granularity == "run":
        named = f"--osmosis-config={path}" if run.manifest.entry is None else f"{path}::{run.manifest.entry}"
        return shlex.join(["pytest", named, "-k", f"row{unit.row}-"])
    test = unit if isinstance(unit, RowId) else plan.unit_of(unit)
    return shlex.join(["pytest", f"{path}::{plan.name}[{test}]"])
