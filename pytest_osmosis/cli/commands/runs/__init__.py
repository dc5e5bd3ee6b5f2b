"""`pytest-osmosis runs`: a module per command below it, like those of the folder above."""

from __future__ import annotations

import argparse

from pytest_osmosis.cli.arguments import Commands
from pytest_osmosis.cli.commands.runs import compare, export, logs, stop
from pytest_osmosis.cli.commands.runs import list as list_command
from pytest_osmosis.text.arguments import CommandParser

COMMANDS = (list_command, logs, stop, compare, export)
"""The modules of the commands below `runs`, in the order of the help."""
NAMES = tuple(command.__name__.rpartition(".")[2] for command in COMMANDS)
_DEFAULT = "list"
_HELP = ("-h", "--help")
_DESCRIPTION = """\
Look at the eval runs of this workspace and manage them. Without a command,
list them, the newest first.
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "runs",
        help="list the eval runs of this workspace, the newest first, and manage them",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    below = parser.add_subparsers(
        dest="runs_command", required=True, metavar="COMMAND", parser_class=CommandParser, title="commands"
    )
    for command in COMMANDS:
        command.add_parser(below)


def with_command(arguments: list[str]) -> list[str]:
    """Return the arguments after `runs` with a command first: `runs sums --json` means `runs list sums --json`.

    Two words of which the first is no command stay as they are: the parser says which commands there are.
    """
    match arguments:
        case [first, *_] if first in {*_HELP, *NAMES}:
            return arguments
        case [first, second, *_] if not first.startswith("-") and not second.startswith("-"):
            return arguments
    return [_DEFAULT, *arguments]
