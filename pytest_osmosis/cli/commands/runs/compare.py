"""`pytest-osmosis runs compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_page_options
from pytest_osmosis.cli.output import CommandOutput, terminal_columns
from pytest_osmosis.text.arguments import filled

NAME = "compare"
_DESCRIPTION = """\
Compare two eval runs, A and B, over the rows that both measured: their pass
rates, the difference with its interval, the rows that got better and worse, and
the differences of config, model, code and data. Rows are the same if their
content is.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs compare sums~1 sums          the newest run of "sums" with the one before
  pytest-osmosis runs compare latest~1 latest --all
  pytest-osmosis runs compare baselines/sums.json latest
  pytest-osmosis runs compare sums-20261122T14 sums --json | jq .difference
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        NAME,
        help="compare two eval runs row by row",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "a", type=filled, metavar="A", help="the earlier eval run, named as for show, or a results file"
    )
    parser.add_argument("b", type=filled, metavar="B", help="the later one")
    parser.add_argument("--all", action="store_true", help="list every row that changed, with all its runs")
    add_page_options(parser)
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.report.comparison_json import comparison_json
    from pytest_osmosis.report.comparison_page import comparison_lines
    from pytest_osmosis.results.compared_runs import compare_runs, read_side

    compared = compare_runs(read_side("A", folder, options.a), read_side("B", folder, options.b))
    if options.json:
        output.json(comparison_json(compared))
    else:
        output.page(comparison_lines(compared, every_row=options.all, columns=terminal_columns()))
    return 0
