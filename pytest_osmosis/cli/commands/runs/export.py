"""`pytest-osmosis runs export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_command
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

FORMATS = ("json", "jsonl", "prime")
_DESCRIPTION = """\
Write the results of an eval run, also of one that died, as far as it got. Or
write a line for each run, for pandas and other programs: its scores, metrics,
tokens, cost, prompt, answer and ground truth, and the whole conversation.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs export sums -o results.json
  pytest-osmosis runs export sums --format=jsonl | head -1
  pytest-osmosis runs export sums --format=prime -o outputs/sums
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "export",
        run,
        "write the results of an eval run, or a line for each of its runs",
        _DESCRIPTION,
        _EXAMPLES,
    )
    parser.add_argument("run", type=filled, metavar="RUN", help="the eval run, named as for show")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="json",
        metavar="|".join(FORMATS),
        help="json (default): results.json, made again from the manifest and the journal; jsonl: a line for each run, "
        "with its whole conversation; prime: results.jsonl and metadata.json as prime eval writes them",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="write this file (default: standard output); with --format=prime, the folder for both files",
    )


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.export import export_prime_files, export_results, export_runs

    export = {"json": export_results, "jsonl": export_runs, "prime": export_prime_files}[options.format]
    export(folder, options.run, options.output, output)
    return 0
