"""The program: it finds the command that the arguments name, and lets it print through a sanitizer.

A command is a module of this folder with its name, or one of an add-on (`seams`), and is imported only if it is typed.
It has a `DESCRIPTION` and maybe `EXAMPLES` for its help, `add_arguments(parser)`, and `run(options, folder, output)`,
which does the work, prints through `output` and returns the exit status. `run` raises `OsmosisError` for what the user
can mend.
"""

from __future__ import annotations

import argparse
import gc
import io
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path

from msgspec.structs import replace

import pytest_osmosis
from pytest_osmosis import seams
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.providers import provider_secrets
from pytest_osmosis.text.arguments import CommandParser
from pytest_osmosis.text.redaction import Sanitizer

COMMANDS: Mapping[str, str] = {
    "help": "show all our options of pytest, or those with a word",
    "init": "begin a workspace: an eval that runs offline at once",
    "show": "show an eval run, one of its conversations, or all runs of a row",
    "html": "write eval runs into one HTML file",
    "view": "show eval runs in a browser, live while they run",
    "submit": "run an eval in the background, and let it survive this terminal",
    "runs": "list the eval runs of this workspace, the newest first, and manage them",
    "merge": "make the results of a whole eval from those of its shards, and decide its gates",
    "schema": "print the JSON Schema of results.json or of a config",
    "skill": "tell agents that code how to use pytest-osmosis, in a SKILL.md",
    "demo": "serve the arithmetic model over HTTP (also python -m pytest_osmosis.demo)",
}
RUNS: Mapping[str, str] = {
    "list": "list the eval runs, the newest first (default)",
    "logs": "print the log of a submitted eval run",
    "stop": "stop an eval run, and wait until its results are written",
    "wait": "wait until an eval run has ended, and exit with its exit status",
    "compare": "compare two eval runs row by row",
    "export": "write the results of an eval run, or a line for each of its runs",
}

COLLECT_AFTER = 100_000
"""The threshold of the garbage collector: a stored eval run is many objects, nearly all of which stay."""

_DESCRIPTION = (
    "Begin a workspace for pytest-osmosis, run its evals in the background, look at eval runs and manage them."
)
_RUNS_DESCRIPTION = """\
Look at the eval runs of this workspace and manage them. Without a command,
list them, the newest first.
"""


def program() -> str:
    """Return the command that the user typed: `python -m` runs `__main__.py`."""
    return "python -m pytest_osmosis" if Path(sys.argv[0]).name == "__main__.py" else "pytest-osmosis"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if the command failed, 2 for a usage error, 130 after Ctrl-C."""
    gc.set_threshold(COLLECT_AFTER)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # print what its encoding does not have as escapes
    try:
        try:
            return _run(list(sys.argv[1:] if arguments is None else arguments))
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:  # the reader, `head`, is gone
        _print_nothing_more()
        return 1
    except KeyboardInterrupt:
        _print_nothing_more()
        return 130
    except OSError as error:  # a full disk
        _print_nothing_more()
        print(f"cannot print: {error.strerror}", file=sys.stderr)
        return 1


def _print_nothing_more() -> None:
    """Drop what is still to be printed, so that Python does not try again when it exits."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run(typed: list[str]) -> int:
    match typed:
        case ["demo", *rest]:
            from pytest_osmosis.demo import main as serve

            return serve(rest, f"{program()} demo")
        case ["runs", *rest]:
            arguments = ["runs", *_with_command(rest)]
        case ["submit", *rest]:
            from pytest_osmosis.cli.submit import with_pytest_arguments

            arguments = ["submit", *with_pytest_arguments(rest)]
        case _:
            arguments = typed
    output = CommandOutput(Sanitizer(provider_secrets(os.environ)))
    try:
        options = _parsed(arguments)
        output = replace(output, color=getattr(options, "color", "auto"))
        status: int = options.perform(options, Path.cwd(), output)
    except OsmosisError as error:
        output.fail(error, as_json="--json" in arguments)
        return 1
    return status


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argument_parser(arguments)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        from pytest_osmosis.config.named_keys import refusals

        parser.error("\n".join(refusals(unknown)) or f"unrecognized arguments: {' '.join(unknown)}")
    return options


def _with_command(arguments: list[str]) -> list[str]:
    """Return the arguments after `runs` with a command first: `runs sums --json` means `runs list sums --json`.

    Two words of which the first is no command stay as they are: the parser says which commands there are.
    """
    match arguments:
        case [first, *_] if first in {"-h", "--help", *RUNS}:
            return arguments
        case [first, second, *_] if not first.startswith("-") and not second.startswith("-"):
            return arguments
    return ["list", *arguments]


def argument_parser(typed: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser for `typed`, in which only the command that it names has arguments; without it, all have."""
    parser = CommandParser(prog=program(), description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"pytest-osmosis {pytest_osmosis.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    wanted = COMMANDS if typed is None else [name for name in typed if name in COMMANDS][:1]
    for name, help in COMMANDS.items():
        command = commands.add_parser(name, help=help, formatter_class=argparse.RawDescriptionHelpFormatter)
        if name == "runs":
            command.description = _RUNS_DESCRIPTION
            below = command.add_subparsers(
                dest="runs_command", required=True, metavar="COMMAND", parser_class=CommandParser, title="commands"
            )
            for each, text in RUNS.items():
                of_runs = below.add_parser(each, help=text, formatter_class=argparse.RawDescriptionHelpFormatter)
                if typed is None or list(typed[:2]) == ["runs", each]:
                    _complete(of_runs, each)
        elif name != "demo" and name in wanted:  # the demo server parses its own arguments
            _complete(command, name)
    return parser


def _complete(parser: argparse.ArgumentParser, name: str) -> None:
    """Add what the module of a command says about it."""
    command = seams.command(name) if name in seams.COMMANDS else import_module(f"pytest_osmosis.cli.{name}")
    parser.description, parser.epilog = command.DESCRIPTION, getattr(command, "EXAMPLES", None)
    command.add_arguments(parser)
    parser.set_defaults(perform=command.run)
