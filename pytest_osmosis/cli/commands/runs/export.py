"""`pytest-osmosis runs export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

NAME = "export"
FORMATS = ("json", "jsonl", "csv", "parquet", "prime")
_DESCRIPTION = """\
Write the results of an eval run, also of one that died, as far as it got. Or
write its runs as a table, a line for each run, for pandas and other programs:
its scores, metrics, tokens, cost, prompt, answer and ground truth.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs export sums -o results.json
  pytest-osmosis runs export sums --format=jsonl | head -1
  pytest-osmosis runs export latest --format=csv -o runs.csv
  pytest-osmosis runs export sums-2026 --format=parquet -o runs.parquet
  pytest-osmosis runs export sums --format=prime -o outputs/sums
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        NAME,
        help="write the results of an eval run, or its runs as a table",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", type=filled, metavar="RUN", help="the eval run, named as for show")
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="json",
        metavar="|".join(FORMATS),
        help="json (default): results.json, made again from the manifest and the journal; or a table of its runs as "
        "JSON Lines with whole conversations, CSV, or Parquet (needs pytest-osmosis[parquet]); or prime: results.jsonl "
        "and metadata.json as prime eval writes them",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="write this file (default: standard output); with --format=prime, the folder for both files",
    )
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.export import export_prime_files, export_results, export_table

    if options.format == "json":
        export_results(folder, options.run, options.output, output)
        return 0
    if options.format == "prime":
        export_prime_files(folder, options.run, options.output, output)
        return 0
    export_table(folder, options.run, options.format, options.output, output)
    return 0
