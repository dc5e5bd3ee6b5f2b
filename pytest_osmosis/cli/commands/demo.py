"""`pytest-osmosis demo`: the demo server, which parses its own arguments."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_osmosis.cli.arguments import Commands, program


def add_parser(commands: Commands) -> None:
    """Add the command to the help. Its arguments never reach this parser."""
    commands.add_parser("demo", help="serve the arithmetic model over HTTP (also python -m pytest_osmosis.demo)")


def serve(arguments: Sequence[str]) -> int:
    from pytest_osmosis.demo.server import main

    return main(list(arguments), f"{program()} demo")
