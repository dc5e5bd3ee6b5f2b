"""`pytest-osmosis html`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_command
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_RUN_HELP = "an eval run, named as for show (default: latest); or one config of several evals, the newest run of each"
_DESCRIPTION = """\
Write eval runs and their conversations into one HTML file, which needs nothing
else: it opens from a disk, as an artifact of CI and in mail, and asks no server
for anything. It shows what the dashboard shows (pytest-osmosis view); several
runs are compared with each other. Only you may read the file until you share it.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis html                            the newest eval run, as report.html
  pytest-osmosis html sums -o sums.html          the newest run of the eval "sums"
  pytest-osmosis html sums~1 sums                two runs, and their comparison
  pytest-osmosis html configs/eval/models.toml   every eval of a config
  pytest-osmosis html --conversations=failed     without those of runs that passed
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, "html", run, "write eval runs into one HTML file", _DESCRIPTION, _EXAMPLES)
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
    from pytest_osmosis.cli.html import write_html

    write_html(folder, options.runs, options.output, options.conversations, output)
    return 0
