"""`pytest-osmosis runs stop`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_command, add_json_option
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = """\
Stop an eval run that is pending or running, wherever it was started. No further
run begins, rollouts in flight finish, and results are written; this command
waits for that. pytest --osmosis-run=NAME makes the runs that are missing.
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "stop", run, "stop an eval run, and wait until its results are written", _DESCRIPTION
    )
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval run, named as for show")
    parser.add_argument("--yes", "-y", action="store_true", help="stop without a question")
    parser.add_argument(
        "--now",
        action="store_true",
        help="interrupt its process, as Ctrl-C does: what is in flight gets two seconds; on the same machine only",
    )
    add_json_option(parser)
    add_color_option(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.stop import stop

    return stop(folder, options.name, output, agreed=options.yes, now=options.now, as_json=options.json)
