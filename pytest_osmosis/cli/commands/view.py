"""`pytest-osmosis view`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_command
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

MOST_PORT = 65535
_RUN_HELP = (
    "the eval run to open, named as for show, or a folder with eval runs (default: the list of those in .osmosis/runs)"
)
_DESCRIPTION = """\
Show the eval runs of this workspace in a browser, live while they run: the list,
each run with its conversations, comparisons and histories. The dashboard listens
on this machine only, and the address that it prints has a token, without which
it gives no data. Ctrl-C ends it; eval runs go on.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis view                       the list of eval runs
  pytest-osmosis view sums                  the newest run of the eval "sums"
  pytest-osmosis view downloads/runs        eval runs in another folder
  pytest-osmosis view --no-open --port=9000 on a remote machine, to be reached through a tunnel
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "view", run, "show eval runs in a browser, live while they run", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument("run", nargs="?", type=filled, metavar="RUN", help=_RUN_HELP)
    parser.add_argument(
        "--port",
        type=_port,
        metavar="PORT",
        help="the port; 0 means any free one (default: 8642, or any free one if that is in use)",
    )
    parser.add_argument("--no-open", action="store_true", help="print the address, and open no browser")
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        type=_host,
        metavar="NAME",
        help="answer to another name of this machine too, as behind a proxy; may be repeated",
    )
    parser.add_argument(
        "--host",
        default="127.0.0.1",
        type=filled,
        metavar="ADDRESS",
        help="the address to listen at (default: 127.0.0.1); others, like 0.0.0.0 in a container, admit other machines",
    )
    add_color_option(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.view import ViewRequest, view

    view(
        folder,
        ViewRequest(options.run, options.port, options.host, tuple(options.allow_host), opens=not options.no_open),
        output,
    )
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= MOST_PORT):
        raise argparse.ArgumentTypeError(f'must be from 0 to {MOST_PORT}, got "{text}"')
    return int(text)


def _host(text: str) -> str:
    if "/" in text or not text.strip() or any(char.isspace() for char in text):
        raise argparse.ArgumentTypeError(f'must be a name like box.example.com, got "{text}"')
    return text
