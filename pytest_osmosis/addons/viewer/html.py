"""`pytest-osmosis html`: the eval runs that the arguments mean, and the file that a report on them goes to."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_osmosis.addons.viewer.compared_runs import entries_of
from pytest_osmosis.addons.viewer.report import Kept, is_report, report, report_lines
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError, writing
from pytest_osmosis.record.find_run import LATEST, find_run, is_run
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.results.publish import why_not_writable
from pytest_osmosis.text.arguments import filled
from pytest_osmosis.text.names import absolute, shown

_RUN_HELP = "an eval run, named as for show (default: latest); or one config of several evals, the newest of each"
DESCRIPTION = """\
Write eval runs and their conversations into one HTML file, which needs nothing
else: it opens from a disk, as an artifact of CI and in mail, and asks no server
for anything. It shows what the dashboard shows (pytest-osmosis view); several
runs are compared with each other. Only you may read the file until you share it.
"""
EXAMPLES = """\
examples:
  pytest-osmosis html                            the newest eval run, as report.html
  pytest-osmosis html sums -o sums.html          the newest eval run of "sums"
  pytest-osmosis html sums~1 sums                two runs, and their comparison
  pytest-osmosis html configs/eval/models.toml   every eval of a config
  pytest-osmosis html --conversations=failed     without those of runs that passed
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", type=filled, metavar="RUN", help=_RUN_HELP)
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        default="report.html",
        metavar="FILE",
        help="the file, which may be an earlier report (default: report.html)",
    )
    parser.add_argument(
        "--conversations",
        choices=("all", "failed", "none"),
        default="all",
        help="the conversations that it holds: all, those of runs that did not pass, or none (default: all)",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    runs = _runs(folder, options.runs or [LATEST])
    path = folder / options.output
    why_not = _why_not(path)
    if why_not is not None:
        raise OsmosisError(f"{options.output}: cannot be written: {why_not}")
    kept: Kept = options.conversations
    with writing(options.output):
        written = report(path, dict.fromkeys(runs, kept), output.sanitizer.redaction)
    output.lines(report_lines(written, "--conversations"))
    return 0


def _runs(folder: Path, names: Sequence[str]) -> list[RunDirectory]:
    """Return each eval run once, in the order of the names."""
    directories = [find_run(folder, each) for name in names for each in entries_of(folder, name) or [name]]
    found = {absolute(directory.path): directory for directory in directories}
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
        return f"it is inside the run directory {shown(run)}; choose a path outside it"
    if path.exists() and path.stat().st_size and not is_report(path):
        return "it exists, and pytest-osmosis did not write it; name another file"
    return None
