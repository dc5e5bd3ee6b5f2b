"""`pytest-osmosis help`: the options of pytest that this package adds, by group, or those that have some words."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.cli.output import CommandOutput, add_output_options, terminal_columns
from pytest_osmosis.config.named_keys import OPTIONS
from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.plugin import options as of_pytest
from pytest_osmosis.plugin.session_options import help_of, key_of
from pytest_osmosis.report.style import bold
from pytest_osmosis.text.names import suggestion

DESCRIPTION = """\
Show all options that pytest-osmosis adds to pytest, and its keys of pytest's
configuration; with words, those whose name or help has them all. Names that
prime eval has for another option are shown only if they are asked for.
"""
EXAMPLES = """\
examples:
  pytest-osmosis help                       all options, by group
  pytest-osmosis help resume                those about resuming
  pytest-osmosis help batch-size
"""
SCHEMA_VERSION = 1
INTRODUCTION = (
    "Options of pytest. Write them with '='. Most have a variable too: --osmosis-batch-size is "
    "PYTEST_OSMOSIS_BATCH_SIZE. `pytest-osmosis --help` lists commands."
)
COLUMNS = 100


class Listed(NamedTuple):
    """An option or an ini key as it is typed, and its help."""

    group: str
    name: str
    help: str

    def has(self, word: str) -> bool:
        """Return True if a word of the name or the help begins like this one."""
        return re.search(rf"\b{re.escape(word)}", f"{self.name} {self.help}", re.IGNORECASE) is not None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="WORD", help="a word or its beginning; all must be there")
    add_output_options(parser)


def run(options: argparse.Namespace, folder: Path, output: CommandOutput) -> int:
    found = matching(options.words)
    if options.json:
        output.json({"schema_version": SCHEMA_VERSION, "options": [each._asdict() for each in found]})
    else:
        output.lines(help_lines(found, min(terminal_columns() or COLUMNS, COLUMNS)))
    return 0


def matching(words: Sequence[str]) -> list[Listed]:
    """Return what has all the words; without any, all but other names. Raises `OsmosisError` if nothing has them."""
    groups, keys = of_pytest.groups(), {*OPTIONS.values()}
    every = [Listed(group, option.typed, help_of(option)) for group, options in groups.items() for option in options]
    for name, help, *_ in of_pytest.ini_keys():
        every.append(Listed("keys of pytest's configuration", name, help or "The option of this name."))
    if not words:
        others = {option.typed for option in of_pytest.OF_PRIME if key_of(option) in keys}
        return [each for each in every if each.name not in others]
    found = [each for each in every if all(map(each.has, words))]
    if not found:
        texts = " ".join(f"{each.name} {each.help}".lower().replace("--osmosis-", "") for each in every)
        known = sorted({*re.findall(r"[a-z][a-z_-]*[a-z]", texts), *re.findall(r"[a-z]{2,}", texts)})
        unknown = next((word for word in words if not any(each.has(word) for each in every)), "")
        meant = suggestion(unknown.lower(), known)
        raise OsmosisError(f"help {' '.join(words)}: no option has this in its name or help{meant}")
    return found


def help_lines(found: Sequence[Listed], columns: int) -> Iterator[str]:
    wrapped = partial(textwrap.wrap, width=columns, break_on_hyphens=False)
    yield from wrapped(INTRODUCTION)
    group = ""
    for entry in found:
        if entry.group != group:
            group = entry.group
            yield from ("", bold(f"{group}:"))
        yield f"  {entry.name}"
        yield from wrapped(entry.help, initial_indent=" " * 6, subsequent_indent=" " * 6)
