"""`pytest-osmosis html`: the eval runs that the arguments mean, and the file that a report on them goes to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.record.find_run import LATEST, find_run, is_run
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.files import why_not_writable
from pytest_osmosis.results.several_runs import entries_of
from pytest_osmosis.text.paths import absolute, shown
from pytest_osmosis.viewer.chunks import Kept
from pytest_osmosis.viewer.report import report, report_lines
from pytest_osmosis.viewer.report_file import is_report


def write_html(folder: Path, names: Sequence[str], to: str, kept: Kept, output: CommandOutput) -> None:
    """Write a report on eval runs, and print where it is.

    Raises `OsmosisError` if an eval run cannot be found or read, or the file cannot be written.
    """
    runs = _runs(folder, names or [LATEST])
    path = folder / to
    why_not = _why_not(path)
    if why_not is not None:
        raise OsmosisError(f"{to}: cannot be written: {why_not}")
    with writing(to):
        written = report(path, dict.fromkeys(runs, kept), output.outlet.redaction)
    output.lines(report_lines(written, "--conversations"))


def _runs(folder: Path, names: Sequence[str]) -> list[RunDirectory]:
    """Return each eval run once, in the order of the names."""
    found: dict[Path, RunDirectory] = {}
    for name in names:
        for each in entries_of(folder, name) or [name]:
            directory = find_run(folder, each)
            found.setdefault(absolute(directory.path), directory)
    twice = [a.name for a in found.values() for b in found.values() if a is not b and a.name == b.name]
    if twice:
        raise OsmosisError(f"{twice[0]}: two folders have this name; a report finds eval runs by their names")
    return list(found.values())


def _why_not(path: Path) -> str | None:
    why_not = why_not_writable(path)
    if why_not is not None:
        return why_not
    run = next((above for above in absolute(path).parents if is_run(above)), None)
    if run is not None:
        return f"it lies in the run directory {shown(run)}, which keeps its files; name another file"
    if path.exists() and path.stat().st_size and not is_report(path):
        return "it exists, and pytest-osmosis did not write it; name another file"
    return None
