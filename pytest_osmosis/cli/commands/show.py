"""`pytest-osmosis show`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_osmosis.cli.arguments import Commands, add_command, add_page_options
from pytest_osmosis.cli.output import CommandOutput, terminal_columns
from pytest_osmosis.text.arguments import filled

if TYPE_CHECKING:
    from pytest_osmosis.report.run_page import Listing

_RUN_HELP = (
    "the eval run: its folder, its name in .osmosis/runs or the beginning of the name, its results file, the name of "
    "an eval (its newest run), or latest (default), the newest of all; ~1 after one of these means the run before"
)
_ROW_RUN_HELP = "a run like row3-run1, a row like row3, or a node id that ends in [row3-run1]; may stand alone"
_DESCRIPTION = """\
Show what became of an eval run: its summary, its gates, the causes of what was
not scored, the rows that changed, and the runs that did not pass. With a run of
a row, show its conversation, its scores, its answer and the expected one.
Eval runs that are still going, or were killed, are shown as far as they got.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis show                       the newest eval run
  pytest-osmosis show sums                  the newest run of the eval "sums"
  pytest-osmosis show sums --failed         with every run that did not pass
  pytest-osmosis show row3-run1             a conversation of the newest eval run
  pytest-osmosis show sums row3 --full      all runs of row 3, with long texts whole
  pytest-osmosis show --json | jq .state    for other programs
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "show",
        run,
        "show an eval run, one of its conversations, or all runs of a row",
        _DESCRIPTION,
        _EXAMPLES,
    )
    parser.add_argument("run", nargs="?", default="latest", type=filled, metavar="RUN", help=_RUN_HELP)
    parser.add_argument("row_run", nargs="?", type=filled, metavar="ROW-RUN", help=_ROW_RUN_HELP)
    listing = parser.add_mutually_exclusive_group()
    listing.add_argument(
        "--failed", action="store_true", help="list every run that did not pass (default: the first 20)"
    )
    listing.add_argument("--all", action="store_true", help="list every run")
    listing.add_argument("--row", type=filled, metavar="ROW", help="show all runs of a row, by its index")
    parser.add_argument("--full", action="store_true", help="shorten no text of a conversation")
    add_page_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.show import show_json, show_lines, show_request

    listing: Listing = "all" if options.all else "failed" if options.failed else "first"
    request = show_request(
        options.run, options.row_run, options.row, listing=listing, full=options.full, columns=terminal_columns()
    )
    if options.json:
        output.json(show_json(folder, request))
    else:
        output.page(show_lines(folder, request))
    return 0
