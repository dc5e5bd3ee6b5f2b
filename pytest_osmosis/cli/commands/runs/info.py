"""`pytest-osmosis runs info`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_json_option
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

NAME = "info"
_DESCRIPTION = """\
Say how an eval run is getting on, or what came out: status, runs done, in
flight and pending, time, scores, pass rate, gates, tokens and cost, and the
command that continues or stops it.
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        NAME,
        help="say how an eval run is getting on",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        nargs="?",
        default="latest",
        type=filled,
        metavar="NAME",
        help="the eval run, named as for show (default: the newest)",
    )
    parser.add_argument("--watch", action="store_true", help="on a terminal, keep it up to date until the run ends")
    add_json_option(parser)
    add_color_option(parser)
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.info import show_info

    show_info(options.name, folder, output, as_json=options.json, watch=options.watch)
    return 0
