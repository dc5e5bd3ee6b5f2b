"""The commands by name, the arguments that several of them take, and commands that there are not.

The latter are those of `osmosis eval` and `prime eval`, and misspelt ones of ours.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pytest_osmosis.cli.output import Color
from pytest_osmosis.text.names import suggestion

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


def add_output_options(parser: argparse.ArgumentParser, *, paged: bool = False) -> None:
    """Add the options of a command that prints lines or JSON, or with `paged` a page through a pager."""
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs")
    if paged:
        help = "print a long page at once (default: PAGER, else less)"
        parser.add_argument("--no-pager", action="store_true", help=help)
    add_color_option(parser)


EVAL = ("eval", "vf-eval")
_RUBRIC = "an eval with --osmosis-agent=recorded and [scoring] rubric scores recorded conversations"
_RUN = "pytest --osmosis-config=FILE, or pytest --osmosis-env=ID for an environment"
ELSEWHERE: Mapping[str, str] = {
    "run": f"type {_RUN}",
    "retry": "type pytest --osmosis-config=FILE --osmosis-run=NAME --osmosis-retry-failed",
    "rubric": _RUBRIC,
    "eval-rubric": _RUBRIC,
    "download": "the files of eval runs are in .osmosis/runs already",
    "upload": "not offered: requests go only to the model",
    "push": "not offered, but for --osmosis-save-to-hf-hub",
    "get": "type pytest-osmosis show NAME",
    "info": "type pytest-osmosis show NAME",
    "tui": "type pytest-osmosis view",
}
"""Commands there whose equivalent has another name, and what to do instead."""


def advice(arguments: Sequence[str]) -> str | None:
    """Return what to type instead of an unknown command, None if there is nothing to say."""
    match arguments:
        case [first, *_] if first.startswith("-"):
            return refusal(arguments)
        case ["runs", first, second, *_] if first not in RUNS and first[:1] != "-" != second[:1]:
            return _instead(f"runs {first}", first, RUNS)
        case [first, second, *_] if first in EVAL and not second.startswith("-"):
            return _instead(f"{first} {second}", second, ()) or f"{first}: no command; type {_RUN}"
        case [first, *_] if first in EVAL:
            return f"{first}: no command; type {_RUN}"
        case [first, *_] if first not in COMMANDS:
            return _instead(first, first, COMMANDS)
    return None


def refusal(arguments: Sequence[str]) -> str | None:
    """Return the errors of arguments that no command has, None if none is a flag of an eval."""
    from pytest_osmosis.config.named_keys import refusals

    return "\n".join(refusals(arguments)) or None


def _instead(words: str, name: str, names: Collection[str]) -> str | None:
    """Return what stands for a command, or the command in `names` that is spelt most like it."""
    if name in RUNS and names is not RUNS:
        near = f"; type pytest-osmosis runs {name}"
    elif name in COMMANDS and names is not COMMANDS:
        near = f"; type pytest-osmosis {name}"
    else:
        near = f"; {ELSEWHERE[name]}" if name in ELSEWHERE else suggestion(name, names)
    return f"{words}: no command{near}" if near else None
