"""The rows that pass more or less often than in another eval run, by name, and the commands that show them."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

from pytest_osmosis.record.run_directory import RUNS
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.results.results import Results
from pytest_osmosis.text.names import listed, shown
from pytest_osmosis.text.numbers import count, plural
from pytest_osmosis.verdicts.comparison import ChangedRow, Passes, RowComparison

MOST_NAMED = 10


def show_command(run_dir: Path, run: RunId | None = None) -> str:
    """Return the command that shows the eval run in `run_dir`, which is relative to the current folder, or one run.

    >>> show_command(Path(".osmosis/runs/sums-1"), RunId(3, 1)), show_command(Path(".osmosis/runs/sums-1").absolute())
    ('pytest-osmosis show sums-1 row3-run1', 'pytest-osmosis show sums-1')
    >>> show_command(Path("../my evals/sums-1"), RunId(3, 1))
    "pytest-osmosis show '../my evals/sums-1' row3-run1"
    """
    path = Path(shown(run_dir)) if run_dir.is_absolute() else run_dir
    name = path.name if path.parent == RUNS else str(path)
    if name.startswith("-"):  # not an option
        name = f"./{path}"
    return shlex.join(["pytest-osmosis", "show", name, *([] if run is None else [str(run)])])


def changed_rows_lines(compared: RowComparison, results: Results) -> list[str]:
    """Return the first rows that are worse and better, and the commands that show one, here and on the old side."""
    changed = compared.changed_rows
    if not changed:
        return []
    return [*named_rows(changed), *_commands(compared, changed[0], results)]


def better_and_worse(better: int, worse: int) -> str:
    """Return the numbers of rows that changed.

    >>> better_and_worse(1, 0), better_and_worse(12, 1009)
    ('1 row better, 0 worse', '12 rows better, 1,009 worse')
    """
    if not better + worse:
        return "no row changed"
    return f"{plural(better, 'row')} better, {count(worse)} worse"


def row_name(row: ChangedRow) -> str:
    """Return the name of a row, with its earlier one if it moved.

    >>> row_name(ChangedRow(3, 3, Passes(0, 1), Passes(1, 1))), row_name(ChangedRow(3, 5, Passes(0, 1), Passes(1, 1)))
    ('row3', 'row3 (was row5)')
    """
    return f"row{row.row_index}" + (f" (was row{row.old_index})" if row.old_index != row.row_index else "")


def passes_text(passes: Passes) -> str:
    return f"{passes.passed}/{passes.measured}"


def named_rows(changed: Sequence[ChangedRow], most: int = MOST_NAMED) -> Iterator[str]:
    """Yield a line on the rows that are worse, and one on those that are better, each with the first `most`.

    Rows of several runs come with how many passed.
    """
    several = any(max(row.new.measured, row.old.measured) > 1 for row in changed)
    for change in ("worse", "better"):
        names = [
            f"{row_name(row)} {passes_text(row.old)} -> {passes_text(row.new)}" if several else row_name(row)
            for row in changed
            if row.is_worse == (change == "worse")
        ]
        if names:
            yield f"  {change}: {listed(names, most)}"


def _commands(compared: RowComparison, row: ChangedRow, results: Results) -> Iterator[str]:
    """Yield the commands that show a run of `row`: one that did not pass if the row is worse, or else one that did."""
    here, name = Path(results.provenance["run_dir"]), f"row{row.row_index}"
    runs = results.measured_runs().items()
    run = next((run for run, passed in runs if run.row == row.row_index and passed is not row.is_worse), None)
    if run is None or results.is_merged:  # no run: a results file that was changed by hand
        return
    yield f"  {name} now: {show_command(here, run)}"
    if compared.kind == "previous run":
        yield f"  {name} then: {show_command(here.parent / compared.name, RunId(row.old_index, run.index))}"
    if compared.kind != "baseline":
        return
    by_baseline = run._replace(model=ModelTag.BASELINE)
    if any(record.run == by_baseline and record.status != "pending" for record in results.all_records):
        yield f"  {name} by the baseline: {show_command(here, by_baseline)}"
