"""The subcommands and their arguments."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import pytest_osmosis
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.providers import provider_secrets
from pytest_osmosis.text.arguments import CommandParser, filled
from pytest_osmosis.text.outlet import Outlet


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if the command failed, 2 for a usage error."""
    _print_any_text()
    try:
        try:
            return _run(sys.argv[1:] if arguments is None else arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` or a pager, is gone
        _print_nothing_more()
        return 1
    except OSError as error:  # a full disk
        _print_nothing_more()
        print(f"cannot print: {error.strerror}", file=sys.stderr)
        return 1


def _print_any_text() -> None:
    """Let the standard streams print what their encoding does not have as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _print_nothing_more() -> None:
    """Drop what is still to be printed, so that Python does not try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["demo"]:
        return _demo(list(arguments[1:]))
    options = argument_parser().parse_args(arguments)
    if options.command == "schema":
        print(_schema(options.of))
        return 0
    outlet = Outlet(provider_secrets(os.environ))
    try:
        for line in _lines(options, Path.cwd()):
            print(outlet.shown(line))
    except OsmosisError as error:
        print(outlet.shown(str(error)), file=sys.stderr)
        return 1
    return 0


def _lines(options: argparse.Namespace, folder: Path) -> Sequence[str]:
    if options.command == "init":
        from pytest_osmosis.cli.init import create_workspace

        return create_workspace(folder, options.name)
    if options.command == "show":
        from pytest_osmosis.cli.show import show_run

        return show_run(folder, options.run, options.row_run)
    from pytest_osmosis.cli.runs import list_runs

    return list_runs(folder)


def _schema(of: str) -> str:
    if of == "config":
        from pytest_osmosis.config.schema import eval_schema

        return json.dumps(eval_schema(), indent=2)
    return files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8").rstrip("\n")


def _demo(arguments: list[str]) -> int:
    from pytest_osmosis.demo.server import main as serve

    return serve(arguments)


def _program() -> str:
    """Return the command that the user typed: `python -m` runs `__main__.py`."""
    return "python -m pytest_osmosis" if Path(sys.argv[0]).name == "__main__.py" else "pytest-osmosis"


def argument_parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog=_program(), description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"pytest-osmosis {pytest_osmosis.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="begin a workspace: an eval that runs offline at once")
    init.add_argument("name", type=filled, metavar="NAME", help="the eval's name: letters, digits, - and _")

    show = commands.add_parser("show", help="print a stored conversation with its scores")
    show.add_argument("run", nargs="?", default="latest", type=filled, metavar="RUN", help=_RUN_HELP)
    show.add_argument(
        "row_run", type=filled, metavar="ROW-RUN", help="a run like row3-run1, or a node id that ends in [row3-run1]"
    )

    commands.add_parser("runs", help="list the eval runs of this workspace, newest first")

    schema = commands.add_parser("schema", help="print the JSON Schema of results.json or of an eval config")
    schema.add_argument("of", nargs="?", choices=["results", "config"], default="results")

    commands.add_parser("demo", help="serve the arithmetic model over HTTP (also python -m pytest_osmosis.demo)")
    return parser


_DESCRIPTION = "Begin a workspace for pytest-osmosis, look at its eval runs, print its schemas."
_RUN_HELP = (
    "the eval run: its folder, its name in .osmosis/runs or the beginning of the name, its results file, or latest "
    "(default), the newest"
)
