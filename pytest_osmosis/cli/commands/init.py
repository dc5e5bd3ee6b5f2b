"""`pytest-osmosis init`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = (
    "Write a small workspace into the current folder: an eval, its dataset, agent and reward functions, and a workflow "
    "for GitHub Actions. The eval runs at once, on an embedded model, offline and without a key. "
    "No file that exists is changed."
)


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        "init", help="begin a workspace: an eval that runs offline at once", description=_DESCRIPTION
    )
    parser.add_argument("name", type=filled, metavar="NAME", help="the eval's name: letters, digits, - and _")
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.init import create_workspace

    output.lines(create_workspace(folder, options.name))
    return 0
