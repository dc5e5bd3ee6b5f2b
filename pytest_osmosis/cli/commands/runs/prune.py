"""`pytest-osmosis runs prune`."""

from __future__ import annotations

import argparse
from datetime import timedelta
from pathlib import Path

from pytest_osmosis.cli.arguments import Commands, add_color_option, add_json_option
from pytest_osmosis.cli.output import CommandOutput
from pytest_osmosis.text.quantities import age, bytes_of

NAME = "prune"
_DESCRIPTION = """\
Remove old eval runs of this workspace, after asking. --older-than and
--max-size choose what goes; --keep and --keep-per-eval keep the newest ones,
and without the other two everything else goes. Never removed are eval runs that
are pending or running, that made a baseline or a cassette or hold one, and the
newest whole one of each plan, with which the next one is compared.
"""
_EXAMPLES = """\
examples:
  pytest-osmosis runs prune --older-than=30d --dry-run
  pytest-osmosis runs prune --older-than=2w --keep-per-eval=3
  pytest-osmosis runs prune --max-size=2GB --yes
"""


def add_parser(commands: Commands) -> None:
    parser = commands.add_parser(
        NAME,
        help="remove old eval runs, but none that is still needed",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--older-than", type=_age, metavar="AGE", help="remove what ended longer ago, like 12h, 30d, 2w"
    )
    parser.add_argument(
        "--max-size", type=_size, metavar="SIZE", help="remove the oldest until the rest fits, like 2GB"
    )
    parser.add_argument("--keep", type=_number, metavar="N", help="keep the newest N eval runs")
    parser.add_argument("--keep-per-eval", type=_number, metavar="N", help="keep the newest N of each eval")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--yes", "-y", action="store_true", help="remove without a question")
    add_json_option(parser)
    add_color_option(parser)
    parser.set_defaults(perform=run)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    from pytest_osmosis.cli.prune import prune
    from pytest_osmosis.results.pruning import PruneRules

    rules = PruneRules(options.older_than, options.keep, options.keep_per_eval, options.max_size)
    return prune(folder, rules, output, dry=options.dry_run, agreed=options.yes, as_json=options.json)


def _age(text: str) -> timedelta:
    found = age(text)
    if found is None:
        raise argparse.ArgumentTypeError(f'"{text}": must be a number with min, h, d or w, like 30d')
    return found


def _size(text: str) -> int:
    found = bytes_of(text)
    if found is None:
        raise argparse.ArgumentTypeError(f'"{text}": must be a number with KB, MB, GB, KiB, MiB or GiB, like 2GB')
    return found


def _number(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise argparse.ArgumentTypeError(f'"{text}": must be a number of eval runs, like 20')
    return int(text)
