"""Arguments that several commands take."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol, get_args

from pytest_osmosis.cli.output import Color, CommandOutput


class Commands(Protocol):
    """The parser of all commands, which argparse keeps private: a place to add one."""

    def add_parser(self, name: str, /, *, help: str, **settings: Any) -> argparse.ArgumentParser: ...


def program() -> str:
    """Return the command that the user typed: `python -m` runs `__main__.py`."""
    return "python -m pytest_osmosis" if Path(sys.argv[0]).name == "__main__.py" else "pytest-osmosis"


def add_command(
    commands: Commands,
    name: str,
    run: Callable[[argparse.Namespace, Path, CommandOutput], int],
    help: str,
    description: str,
    examples: str | None = None,
) -> argparse.ArgumentParser:
    """Add a command that `run` performs, with a description and examples that keep their lines."""
    parser = commands.add_parser(
        name,
        help=help,
        description=description,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.set_defaults(perform=run)
    return parser


def add_json_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs")


def add_color_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=get_args(Color),
        default="auto",
        metavar="yes|no|auto",
        help="colours; auto (default) means on a terminal, and obeys NO_COLOR and FORCE_COLOR",
    )


def add_page_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that prints a page: JSON, pager, colours."""
    add_json_option(parser)
    parser.add_argument("--no-pager", action="store_true", help="print a long page at once (default: PAGER, else less)")
    add_color_option(parser)
