"""The program: it finds the command that the arguments name, and lets it print through an outlet."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest_osmosis
from pytest_osmosis.cli.arguments import program
from pytest_osmosis.cli.commands import COMMANDS, NAMES, demo, runs, submit
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.providers import provider_secrets
from pytest_osmosis.text.arguments import CommandParser
from pytest_osmosis.text.outlet import Outlet

_DESCRIPTION = (
    "Begin a workspace for pytest-osmosis, run its evals in the background, look at eval runs and manage them."
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if the command failed, 2 for a usage error, 130 after Ctrl-C."""
    _print_any_text()
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head` or a pager, is gone
        _print_nothing_more()
        return 1
    except KeyboardInterrupt:
        _print_nothing_more()
        return 130
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


def _run(arguments: list[str]) -> int:
    if arguments[:1] == ["demo"]:
        return demo.serve(arguments[1:])
    parser = argument_parser()
    if not _begins_with_a_command(arguments):
        from pytest_osmosis.cli.unknown_commands import advice

        if (instead := advice(arguments)) is not None:
            parser.error(instead)
    if arguments[:1] == ["runs"]:
        arguments = ["runs", *runs.with_command(arguments[1:])]
    if arguments[:1] == ["submit"]:
        arguments = ["submit", *submit.with_pytest_arguments(arguments[1:])]
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        from pytest_osmosis.cli.unknown_commands import refusal

        parser.error(refusal(unknown) or f"unrecognized arguments: {' '.join(unknown)}")
    outlet = Outlet(provider_secrets(os.environ))
    output = CommandOutput(outlet, getattr(options, "color", "auto"), paged=not getattr(options, "no_pager", True))
    try:
        status: int = options.perform(options, Path.cwd(), output)
    except OsmosisError as error:
        print(outlet.shown(str(error)), file=sys.stderr)
        return 1
    return status


def _begins_with_a_command(arguments: list[str]) -> bool:
    """Return False if something may be said about a command that there is not."""
    match arguments:
        case ["runs", first, _, *_]:
            return first in runs.NAMES
        case [first, *_]:
            return first in (*NAMES, "-h", "--help", "--version")
    return True


def argument_parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog=program(), description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"pytest-osmosis {pytest_osmosis.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
