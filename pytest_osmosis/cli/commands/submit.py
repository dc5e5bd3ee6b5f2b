"""`pytest-osmosis submit`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_command, add_json_option
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = """\
Run an eval in the background: show its plan, ask, and start pytest so that it
survives this terminal. Options of pytest that begin with --osmosis- may stand
anywhere, others after --.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis submit configs/eval/sums.toml
  pytest-osmosis submit configs/eval/sums.toml --yes --osmosis-n=4 --osmosis-limit=all
  pytest-osmosis submit configs/eval/sums.toml --name nightly -- -n 2 --junitxml=sums.xml
"""
_PREFIX = "--osmosis-"
_ARGUMENT = "--pytest-argument"
"""The option that hands an argument for pytest through this parser, which would not know it."""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "submit",
        run,
        "run an eval in the background, and let it survive this terminal",
        _DESCRIPTION,
        _EXAMPLES,
    )
    parser.add_argument(
        "config", type=filled, metavar="CONFIG", help="the TOML of the eval, or TOML::NAME for one of several"
    )
    parser.add_argument(_ARGUMENT, dest="pytest_arguments", action="append", default=[], help=argparse.SUPPRESS)
    parser.add_argument("--yes", "-y", action="store_true", help="submit without a question")
    parser.add_argument(
        "--name",
        type=filled,
        metavar="NAME",
        help="the name of the eval run (default: made of eval and time); one that did not finish is resumed",
    )
    add_json_option(parser)
    add_color_option(parser)


def with_pytest_arguments(arguments: list[str]) -> list[str]:
    """Return the arguments after `submit`, of which those for pytest are values of an option.

    >>> with_pytest_arguments(["--osmosis-n=2", "x.toml", "--yes", "--", "-n2"])
    ['x.toml', '--yes', '--pytest-argument=--osmosis-n=2', '--pytest-argument=-n2']
    """
    end = arguments.index("--") if "--" in arguments else len(arguments)
    of_evals = [argument for argument in arguments[:end] if argument.startswith(_PREFIX)]
    own = [argument for argument in arguments[:end] if not argument.startswith(_PREFIX)]
    return [*own, *(f"{_ARGUMENT}={argument}" for argument in (*of_evals, *arguments[end + 1 :]))]


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.submit import submit

    arguments = options.pytest_arguments
    return submit(folder, options.config, options.name, arguments, output, agreed=options.yes, as_json=options.json)
