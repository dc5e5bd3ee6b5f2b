"""`pytest-osmosis runs list`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_command, add_page_options
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = """\
List the eval runs of this workspace, newest first: their status, pass rate,
gates and cost. The statuses are those of Osmosis' hosted evals: pending (no
code is loaded yet), running, finished, failed (killed, or every run met the
same error) and stopped. A run that fails a gate has finished.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs                       the newest 20
  pytest-osmosis runs list --all            all of them
  pytest-osmosis runs list sums             only those of the eval "sums"
  pytest-osmosis runs list --status failed --model openai/
  pytest-osmosis runs list --json           for other programs
"""
_FILTERS = {
    "status": ("STATUS", "only runs with this status: pending, running, finished, failed, stopped or unreadable"),
    "model": ("MODEL", "only runs of this model: its name, the beginning of it, or a pattern like *-mini"),
    "dataset": ("DATASET", "only runs over this dataset, likewise"),
    "rollout": ("ROLLOUT", "only runs of this rollout or agent, likewise"),
}


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands, "list", run, "list the eval runs, the newest first (default)", _DESCRIPTION, _EXAMPLES
    )
    parser.add_argument("eval", nargs="?", type=filled, metavar="EVAL", help="only the runs of this eval")
    parser.add_argument("--all", action="store_true", help="list all runs (default: the newest 20)")
    for name, (metavar, help) in _FILTERS.items():
        parser.add_argument(f"--{name}", type=filled, metavar=metavar, help=help)
    add_page_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.runs import ListRequest, list_runs, runs_json

    request = ListRequest(options.eval, {name: getattr(options, name) for name in _FILTERS}, options.all)
    if options.json:
        output.json(runs_json(folder, request))
    else:
        output.page(list_runs(folder, request))
    return 0
