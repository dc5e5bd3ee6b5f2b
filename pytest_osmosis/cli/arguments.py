"""The commands by name, and the arguments that several of them take."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import get_args

from pytest_osmosis.cli.output import Color

COMMANDS: Mapping[str, str] = {
    "init": "begin a workspace: an eval that runs offline at once",
    "show": "show an eval run, one of its conversations, or all runs of a row",
    "html": "write eval runs into one HTML file",
    "view": "show eval runs in a browser, live while they run",
    "submit": "run an eval in the background, and let it survive this terminal",
    "runs": "list the eval runs of this workspace, the newest first, and manage them",
    "merge": "make the results of a whole eval from those of its shards, and decide its gates",
    "schema": "print the JSON Schema of results.json or of a config",
    "demo": "serve the arithmetic model over HTTP (also python -m pytest_osmosis.demo)",
}
"""The help of each command."""
RUNS: Mapping[str, str] = {
    "list": "list the eval runs, the newest first (default)",
    "logs": "print the log of a submitted eval run",
    "stop": "stop an eval run, and wait until its results are written",
    "compare": "compare two eval runs row by row",
    "export": "write the results of an eval run, or a line for each of its runs",
}
"""The help of each command below `runs`."""


def program() -> str:
    """Return the command that the user typed: `python -m` runs `__main__.py`."""
    return "python -m pytest_osmosis" if Path(sys.argv[0]).name == "__main__.py" else "pytest-osmosis"


def add_color_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=get_args(Color),
        default="auto",
        metavar="yes|no|auto",
        help="colours; auto (default) means on a terminal, and obeys NO_COLOR and FORCE_COLOR",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that prints lines or JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs")
    add_color_option(parser)


def refusal(arguments: Sequence[str]) -> str | None:
    """Return the errors of arguments that no command has, None if none is a flag of an eval."""
    from pytest_osmosis.config.named_keys import refusals

    return "\n".join(refusals(arguments)) or None
