"""`pytest-osmosis runs list`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_page_options
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

NAME = "list"
_DESCRIPTION = """\
List the eval runs of this workspace, newest first: their state, pass rate,
gates and cost. "running" has no results yet; "killed" ended before it wrote any.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs
  pytest-osmosis runs list sums             only those of the eval "sums"
  pytest-osmosis runs list --json           for other programs
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        NAME,
        help="list the eval runs, the newest first (default)",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("eval", nargs="?", type=filled, metavar="EVAL", help="only the runs of this eval")
    add_page_options(parser)
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.runs import list_runs, runs_json

    if options.json:
        output.json(runs_json(folder, options.eval))
    else:
        output.page(list_runs(folder, options.eval))
    return 0
