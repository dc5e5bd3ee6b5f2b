"""The subcommands and their arguments."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import pytest_osmosis
from pytest_osmosis.cli.output import Color, print_lines, terminal_columns
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.models.providers import provider_secrets
from pytest_osmosis.text.arguments import CommandParser, filled
from pytest_osmosis.text.outlet import Outlet

if TYPE_CHECKING:
    from pytest_osmosis.cli.show import ShowRequest
    from pytest_osmosis.report.run_page import Listing


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return the exit status: 0, 1 if the command failed, 2 for a usage error, 130 after Ctrl-C."""
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


def _run(arguments: Sequence[str]) -> int:
    if arguments[:1] == ["demo"]:
        return _demo(list(arguments[1:]))
    options = argument_parser().parse_args(arguments)
    if options.command == "schema":
        print(_schema(options.of))
        return 0
    outlet = Outlet(provider_secrets(os.environ))
    try:
        if getattr(options, "json", False):
            print(outlet.json(_document(options, Path.cwd())))
        else:
            print_lines(
                _lines(options, Path.cwd()), outlet, color=getattr(options, "color", "auto"), paged=_is_paged(options)
            )
    except OsmosisError as error:
        print(outlet.shown(str(error)), file=sys.stderr)
        return 1
    return 0


def _is_paged(options: argparse.Namespace) -> bool:
    return options.command in ("show", "runs") and not options.no_pager


def _lines(options: argparse.Namespace, folder: Path) -> Iterable[str]:
    if options.command == "init":
        from pytest_osmosis.cli.init import create_workspace

        return create_workspace(folder, options.name)
    if options.command == "show":
        from pytest_osmosis.cli.show import show_lines

        return show_lines(folder, _request(options))
    from pytest_osmosis.cli.runs import list_runs

    return list_runs(folder, options.eval)


def _document(options: argparse.Namespace, folder: Path) -> Mapping[str, Any]:
    if options.command == "show":
        from pytest_osmosis.cli.show import show_json

        return show_json(folder, _request(options))
    from pytest_osmosis.cli.runs import runs_json

    return runs_json(folder, options.eval)


def _request(options: argparse.Namespace) -> ShowRequest:
    from pytest_osmosis.cli.show import show_request

    listing: Listing = "all" if options.all else "failed" if options.failed else "first"
    return show_request(
        options.run, options.row_run, options.row, listing=listing, full=options.full, columns=terminal_columns()
    )


def _schema(of: str) -> str:
    if of in ("config", "training"):
        from pytest_osmosis.config.schema import eval_schema, training_schema

        return json.dumps(eval_schema() if of == "config" else training_schema(), indent=2)
    return files("pytest_osmosis").joinpath("results.schema.json").read_text(encoding="utf-8").rstrip("\n")


def _demo(arguments: list[str]) -> int:
    from pytest_osmosis.demo.server import main as serve

    return serve(arguments, f"{_program()} demo")


def _program() -> str:
    """Return the command that the user typed: `python -m` runs `__main__.py`."""
    return "python -m pytest_osmosis" if Path(sys.argv[0]).name == "__main__.py" else "pytest-osmosis"


def argument_parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog=_program(), description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"pytest-osmosis {pytest_osmosis.__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    init = commands.add_parser("init", help="begin a workspace: an eval that runs offline at once", description=_INIT)
    init.add_argument("name", type=filled, metavar="NAME", help="the eval's name: letters, digits, - and _")

    show = commands.add_parser(
        "show",
        help="show an eval run, one of its conversations, or all runs of a row",
        description=_SHOW,
        epilog=_SHOW_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    show.add_argument("run", nargs="?", default="latest", type=filled, metavar="RUN", help=_RUN_HELP)
    show.add_argument("row_run", nargs="?", type=filled, metavar="ROW-RUN", help=_ROW_RUN_HELP)
    listing = show.add_mutually_exclusive_group()
    listing.add_argument(
        "--failed", action="store_true", help="list every run that did not pass (default: the first 20)"
    )
    listing.add_argument("--all", action="store_true", help="list every run")
    listing.add_argument("--row", type=filled, metavar="ROW", help="show all runs of a row, by its index")
    show.add_argument("--full", action="store_true", help="shorten no text of a conversation")
    _add_output_options(show)

    runs = commands.add_parser(
        "runs",
        help="list the eval runs of this workspace, newest first",
        description=_RUNS,
        epilog=_RUNS_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    runs.add_argument("eval", nargs="?", type=filled, metavar="EVAL", help="only the runs of this eval")
    _add_output_options(runs)

    schema = commands.add_parser(
        "schema", help="print the JSON Schema of results.json or of a config", description=_SCHEMA
    )
    schema.add_argument(
        "of",
        nargs="?",
        choices=["results", "config", "training"],
        default="results",
        help="results (default) for results.json, config for the TOML of an eval, training for that of a training run",
    )

    commands.add_parser("demo", help="serve the arithmetic model over HTTP (also python -m pytest_osmosis.demo)")
    return parser


_INIT = (
    "Write a small workspace into the current folder: an eval, its dataset, agent and reward functions, and a workflow "
    "for GitHub Actions. The eval runs at once, on an embedded model, offline and without a key. "
    "No file that exists is changed."
)
_SCHEMA = "Print a JSON Schema, with which editors complete and check a file, and programs validate it."
_DESCRIPTION = "Begin a workspace for pytest-osmosis, look at its eval runs, print its schemas."
_RUN_HELP = (
    "the eval run: its folder, its name in .osmosis/runs or the beginning of the name, its results file, the name of "
    "an eval (its newest run), or latest (default), the newest of all"
)
_ROW_RUN_HELP = "a run like row3-run1, a row like row3, or a node id that ends in [row3-run1]; may stand alone"
_SHOW = """\
Show what became of an eval run: its summary, its gates, the causes of what was
not scored, the rows that changed, and the runs that did not pass. With a run of
a row, show its conversation, its scores, its answer and the expected one.
Eval runs that are still going, or were killed, are shown as far as they got.
"""
_SHOW_EXAMPLES = """\
examples:
  pytest-osmosis show                       the newest eval run
  pytest-osmosis show sums                  the newest run of the eval "sums"
  pytest-osmosis show sums --failed         with every run that did not pass
  pytest-osmosis show row3-run1             a conversation of the newest eval run
  pytest-osmosis show sums row3 --full      all runs of row 3, with long texts whole
  pytest-osmosis show --json | jq .state    for other programs
"""
_RUNS = """\
List the eval runs of this workspace, newest first: their state, pass rate,
gates and cost. "running" has no results yet; "killed" ended before it wrote any.
"""
_RUNS_EXAMPLES = """\
examples:
  pytest-osmosis runs
  pytest-osmosis runs sums                  only those of the eval "sums"
  pytest-osmosis runs --json                for other programs
"""


def _add_output_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs")
    parser.add_argument("--no-pager", action="store_true", help="print a long page at once (default: PAGER, else less)")
    parser.add_argument(
        "--color",
        choices=get_args(Color),
        default="auto",
        metavar="yes|no|auto",
        help="colours; auto (default) means on a terminal, and obeys NO_COLOR and FORCE_COLOR",
    )
