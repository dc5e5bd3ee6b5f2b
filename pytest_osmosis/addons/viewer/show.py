"""`pytest-osmosis show`: which eval run and which of its runs the arguments mean, and the page on them."""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath
from typing import Any

from pytest_osmosis import seams
from pytest_osmosis.addons.viewer.message_layout import MOST_CHARS, Shortener
from pytest_osmosis.addons.viewer.run_lines import (
    Listing,
    RunContext,
    config_argument,
    page_json,
    page_lines,
    row_lines,
    run_lines,
    runs_json,
)
from pytest_osmosis.addons.viewer.stored_results import LastTerms, Replayed, RunHistory, read_stored, replayed
from pytest_osmosis.cli.output import CommandOutput, add_output_options, terminal_columns
from pytest_osmosis.config.eval_kinds import merged
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.files.reading import something_at
from pytest_osmosis.record.find_run import LATEST, RESULTS, TRACES, StoredEvalRun, find_run, stored
from pytest_osmosis.record.journal import EventReader
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.record.run_id import RowId, RunId, Unit
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import listed, shown

_RUN_HELP = (
    "the eval run: its folder, its name in .osmosis/runs or the beginning of the name, its results file, a folder of "
    "vf-eval, the name of an eval (its newest eval run), or latest (default), the newest of all; ~1 after one of these "
    "means the one before"
)
_ROW_RUN_HELP = "a run like row3-run1, a row like row3, or a node id that ends in [row3-run1]; may stand alone"
DESCRIPTION = """\
Show what became of an eval run: its summary, its gates, the causes of what was
not scored, the rows that changed, and the runs that did not pass. With a run of
a row, show its conversation, its scores, its answer and the expected one.
Eval runs that are still going, or were killed, are shown as far as they got.
"""
EXAMPLES = """\
examples:
  pytest-osmosis show                       the newest eval run
  pytest-osmosis show sums                  the newest eval run of "sums"
  pytest-osmosis show sums --failed         with every run that did not pass
  pytest-osmosis show row3-run1             a conversation of the newest eval run
  pytest-osmosis show sums row3 --full      all runs of row 3, with long texts whole
  pytest-osmosis show --json | jq .state    for other programs
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", nargs="?", default="latest", type=filled, metavar="RUN", help=_RUN_HELP)
    parser.add_argument("row_run", nargs="?", type=filled, metavar="ROW-RUN", help=_ROW_RUN_HELP)
    listing = parser.add_mutually_exclusive_group()
    listing.add_argument(
        "--failed", action="store_true", help="list every run that did not pass (default: the first 20)"
    )
    listing.add_argument("--all", action="store_true", help="list every run")
    parser.add_argument("--full", action="store_true", help="shorten no text of a conversation")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    listing: Listing = "all" if options.all else "failed" if options.failed else "first"
    name, unit = named(options.run, options.row_run)
    directory = _directory(folder, name)
    if unit is not None and listing != "first":
        raise OsmosisError(
            f"--{listing}: selects the runs on the page of an eval run, but {unit} is named; leave one out"
        )
    if options.json:
        output.json(show_json(directory, unit, only_failed=options.failed))
    elif unit is None:
        output.lines(page_lines(read_stored(stored(directory)), listing, terminal_columns()))
    else:
        output.lines(unit_lines(directory, unit, full=options.full))
    return 0


def _directory(folder: Path, name: str) -> RunDirectory:
    """Return the directory of the eval run that `name` means, or that holds what files of `prime eval` say."""
    is_foreign = any(something_at(folder / name / file) for file in (TRACES, RESULTS))
    return seams.run_of_files(folder / name) if is_foreign else find_run(folder, name)


def named(run: str, row_run: str | None) -> tuple[str, Unit | None]:
    """Return the eval run that the arguments mean, and the run or the row of it, None for the page of the eval run.

    A single one may name the eval run, or a run of the latest one. Raises `OsmosisError` for what names no run.
    """
    if row_run is None and (_unit(run) is not None or "::" in run):
        head, colons, tail = run.partition("::")
        of_node = (tail.partition("[")[0] or PurePath(head).stem) if colons else ""
        run, row_run = of_node or LATEST, run if _unit(run) is not None else None
    unit = None if row_run is None else _unit(row_run)
    if row_run is not None and unit is None:
        raise OsmosisError(
            f'"{row_run}": must be a run like row3-run1, a row like row3, or a node id that ends in one of them, '
            "[row3-run1]"
        )
    return run, unit


def unit_lines(directory: RunDirectory, unit: Unit, *, full: bool = False) -> Iterator[str]:
    """Yield the lines of the page of a run or a row. Unless it is `full`, long texts are shortened.

    Raises `OsmosisError` if files are not valid, or the run or row is not in the eval run.
    """
    histories = _histories(directory, replayed(directory.journal), unit)
    context = _context(stored(directory), unit, histories)
    cut = Shortener(None if full else MOST_CHARS)
    if isinstance(unit, RunId):
        yield from run_lines(histories[0], context, cut)
    else:
        yield from row_lines(unit.row, histories, context, cut)


def show_json(directory: RunDirectory, unit: Unit | None, *, only_failed: bool = False) -> dict[str, Any]:
    """Return the page of an eval run, or of a run or a row of it, as JSON. Raises `OsmosisError` as `unit_lines`."""
    found = read_stored(stored(directory))
    if unit is None:
        return page_json(found, only_failed=only_failed)
    return runs_json(found, _histories(directory, found.replayed, unit))


def _unit(text: str) -> Unit | None:
    """Return the run or the row that a text or the end of a node id names."""
    name = text.rpartition("[")[2].removesuffix("]") if text.endswith("]") else text
    return RunId.named(name) or RowId.named(name)


def _histories(directory: RunDirectory, found: Replayed, unit: Unit) -> Sequence[RunHistory]:
    """Return the history of a run, or those of all runs of a row, by both models unless the baseline's was named."""
    known = sorted(found.ledger.records)
    with EventReader(directory.journal) as reader:
        wanted = [
            found.history(found.ledger.records[run], reader)
            for run in known
            if run == unit
            or (isinstance(unit, RowId) and run.row == unit.row and (run.is_baseline or not unit.is_baseline))
        ]
    if wanted:
        return wanted
    rows = sorted({run.row for run in known})
    there = [str(run) for run in known if run.row == unit.row]
    if there:
        raise OsmosisError(f"{unit}: not in {shown(directory.path)}; of row {unit.row} it has {listed(there, 10)}")
    has = f"it has {_ranges(rows)}" if rows else "no run of it has begun"
    raise OsmosisError(f"{unit}: not in {shown(directory.path)}; {has}")


def _ranges(rows: Sequence[int]) -> str:
    """Return rows in words.

    >>> _ranges([3]), _ranges([0, 1, 2, 7])
    ('row 3', 'rows 0 to 2, 7')
    """
    spans = merged((row, row) for row in rows)
    parts = [str(first) if first == last else f"{first} to {last}" for first, last in spans]
    return f"{'row' if len(rows) == 1 else 'rows'} {listed(parts, 10)}"


def _context(run: StoredEvalRun, unit: Unit, histories: Sequence[RunHistory]) -> RunContext:
    rule, prices = LastTerms.of(run, histories[0].scorers)
    known = ((each.record, price) for each in histories if (price := prices.get(each.record.run.model)) is not None)
    costs = {record.run: price.cost_usd(record.usage) for record, price in known}
    line = next((line for row, line in run.manifest.plan.rows() if row == unit.row), None)
    dataset = run.manifest.subject.extra["dataset"]
    has_lines = not run.manifest.environment and not run.dataset.is_dir()
    return RunContext(
        run.directory.name,
        rule,
        {id: cost for id, cost in costs.items() if cost is not None},
        "" if line is None else f"{dataset}:{line}" if has_lines else f"row {unit.row} of {dataset}",
        "" if line is None else _rerun(run, unit),
    )


def _rerun(run: StoredEvalRun, unit: Unit) -> str:
    """Return the command that repeats a run, "" if its config is gone, or options changed what it says."""
    plan, path = run.manifest.plan, run.own_config
    if path is None:
        return ""
    if isinstance(unit, RowId) and plan.granularity == "run":
        return shlex.join(["pytest", config_argument(path, run.manifest.entry), "-k", f"row{unit.row}-"])
    test = unit if isinstance(unit, RowId) else plan.unit_of(unit)
    return shlex.join(["pytest", f"{path}::{plan.name}[{test}]"])
