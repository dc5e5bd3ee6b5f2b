"""`pytest-osmosis merge`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_command, add_json_option
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.arguments import filled

_DESCRIPTION = """\
Make the results of a whole eval from those of its shards (--osmosis-shard), and
decide its gates: with the same statistics, verdicts and exit status as one run
of all rows. Files of several evals are merged eval by eval.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis merge shard-*/results.json -o results.json
  pytest-osmosis merge shard-*/results.json --markdown=summary.md
  pytest-osmosis merge shards/*.json -o "merged/{name}.json"   several evals

exit status, as of pytest:
  0  the gates hold; without a gate: every run passed
  1  a gate fails; without a gate: a run failed
  4  the files do not belong together, or cannot be read
  9  not measured: a gate could not be decided, an eval was stopped, or a shard is missing
"""


def add_parser(commands: Commands) -> None:
    parser = add_command(
        commands,
        "merge",
        run,
        "make the results of a whole eval from those of its shards, and decide its gates",
        _DESCRIPTION,
        _EXAMPLES,
    )
    parser.add_argument("files", nargs="+", type=filled, metavar="FILE", help="the results of a shard")
    parser.add_argument(
        "-o",
        "--output",
        type=filled,
        metavar="FILE",
        help="write results.json here; a folder, or a path with {name}, for several evals (default: only print)",
    )
    parser.add_argument("--markdown", type=filled, metavar="FILE", help="write a summary in Markdown here")
    parser.add_argument(
        "--baseline",
        type=filled,
        metavar="FILE",
        help="the file of [baseline] results (default: where the shards had it, from this folder)",
    )
    add_json_option(parser)
    add_color_option(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.merge import MergeRequest, merge_files

    request = MergeRequest(
        [folder / file for file in options.files],
        options.output,
        None if options.markdown is None else folder / options.markdown,
        None if options.baseline is None else folder / options.baseline,
        json=options.json,
    )
    return merge_files(folder, request, output)
