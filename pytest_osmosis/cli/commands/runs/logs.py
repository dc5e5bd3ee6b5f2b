"""`pytest-osmosis runs logs`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_command, add_page_options
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = """\
Print what pytest printed in a submitted eval run, and what user code printed
outside of runs. What belongs to a run is on its page, which pytest-osmosis show
prints.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs logs latest --tail 20
  pytest-osmosis runs logs sums --follow    until the newest run of "sums" ends
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(commands, "logs", run, "print the log of a submitted eval run", _DESCRIPTION, _EXAMPLES)
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval run, named as for show")
    parser.add_argument("--follow", "-f", action="store_true", help="go on printing until the eval run ends")
    parser.add_argument("--tail", type=_count, metavar="N", help="begin with the last N lines of each log")
    add_page_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.logs import RunLogs
    from pytest_osmosis.errors import OsmosisError
    from pytest_osmosis.record.find_run import find_run

    if options.follow and options.json:
        raise OsmosisError("--json and --follow exclude each other; leave one out")
    logs = RunLogs(find_run(folder, options.name), output.outlet)
    if options.json:
        output.json(logs.to_json(options.tail))
    elif options.follow:
        logs.follow(options.tail, output)
    else:
        output.page(logs.lines(options.tail))
    return 0


def _count(text: str) -> int:
    """Return a number of lines."""
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f'must be a number of lines, got "{text}"')
    return int(text)
