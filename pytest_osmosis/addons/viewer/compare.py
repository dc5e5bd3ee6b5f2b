"""`pytest-osmosis runs compare`."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_osmosis.addons.viewer.compared_runs import compare_runs, compared_with_first, entries_of, read_side
from pytest_osmosis.addons.viewer.comparison_lines import comparison_json, comparison_lines
from pytest_osmosis.cli.output import CommandOutput, add_output_options, terminal_columns
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.report.overview import overview_lines
from pytest_osmosis.text.arguments import filled

DESCRIPTION = """\
Compare two eval runs, A and B, over the rows that both measured: their pass
rates, the difference with its interval, the rows that got better and worse, and
the differences of config, model, code and data. Rows are the same if their
content is.

Several runs are compared with the first, in a table, with p corrected by Holm's
method. A config with several evals means the newest eval run of each.
"""
EXAMPLES = """\
examples:
  pytest-osmosis runs compare sums~1 sums          the newest eval run of "sums" with the one before
  pytest-osmosis runs compare latest~1 latest --all
  pytest-osmosis runs compare baselines/sums.json latest
  pytest-osmosis runs compare sums-20261122T14 sums --json | jq .difference
  pytest-osmosis runs compare configs/eval/models.toml         every eval of the config
  pytest-osmosis runs compare small medium large               three evals with the first
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=filled,
        nargs="+",
        metavar="RUN",
        help="two eval runs or more, the earlier one first, named as for show; results files; or one config of several "
        "evals",
    )
    parser.add_argument("--table", action="store_true", help="print the table also for two runs")
    parser.add_argument("--all", action="store_true", help="name every row that changed")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    names: list[str] = options.runs
    entries = entries_of(folder, names[0]) if len(names) == 1 else []
    if len(entries or names) < 2:
        raise OsmosisError(
            f"{names[0]}: one eval run cannot be compared; name two or more, or a config with several evals"
        )
    if entries or len(names) > 2 or options.table:
        found = compared_with_first(folder, entries or names)
        if options.json and found[0].among is not None:
            output.json(found[0].among.to_json())
        else:
            output.lines(overview_lines(found, terminal_columns()))
        return 0
    compared = compare_runs(read_side("A", folder, names[0]), read_side("B", folder, names[1]))
    if options.json:
        output.json(comparison_json(compared))
    else:
        output.lines(comparison_lines(compared, every_row=options.all))
    return 0
