"""Output of the commands and options for it: standard output through the sanitizer, in colours if it is a terminal.

Colours follow pytest's rules: `--color` counts first, then PY_COLORS, NO_COLOR and FORCE_COLOR, then the terminal.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Literal, get_args

from msgspec import Struct

from pytest_osmosis.errors import OsmosisError
from pytest_osmosis.report.style import ansi, painted
from pytest_osmosis.text.redaction import Sanitizer
from pytest_osmosis.text.safe import fitted

Color = Literal["auto", "yes", "no"]
NOBODY_TO_ASK = 2
"""The exit status if a question needs an answer, and there is no terminal."""


def add_color_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--color",
        choices=get_args(Color),
        default="auto",
        metavar="yes|no|auto",
        help="colours; auto (default) means on a terminal, and obeys NO_COLOR and FORCE_COLOR",
    )


def add_output_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that prints lines or JSON."""
    parser.add_argument("--json", action="store_true", help="print JSON, for other programs; of an error, too")
    add_color_option(parser)


class CommandOutput(Struct, frozen=True):
    """Prints for one command: text through `sanitizer`, and in colours."""

    sanitizer: Sanitizer
    color: Color = "auto"

    def lines(self, lines: Iterable[str]) -> None:
        colours = has_colours(self.color, os.environ, terminal=_is_terminal())
        texts = (painted(line, self.sanitizer.shown, ansi if colours else lambda text, _: text) for line in lines)
        for text in texts:
            print(text)

    def live(self, lines: Iterable[str]) -> None:
        """Print lines at once, although more may follow later."""
        self.lines(lines)
        sys.stdout.flush()

    def in_place(self, text: str) -> None:
        """Show a text in the last line of a terminal, in place of the one before; "" leaves none."""
        if (columns := terminal_columns()) is not None:
            print(f"\r{fitted(self.sanitizer.shown(text), columns - 1).ljust(columns - 1)}\r", end="", flush=True)

    def complain(self, text: object) -> None:
        print(self.sanitizer.shown(str(text)), file=sys.stderr)

    def fail(self, error: OsmosisError, *, as_json: bool) -> None:
        self.complain(error)
        if as_json:
            self.json({"error": {"message": str(error)}})

    def refusal(self, question: str, unconfirmed: str, *, asks: bool) -> int | None:
        """Ask before something that costs money or cannot be undone. Return None for yes, else the exit status.

        It is 2 without a terminal, or without `asks`, as a program may read the output. `unconfirmed` is printed after
        any other answer.
        """
        if not asks or sys.stdin is None or not (sys.stdin.isatty() and _is_terminal()):
            why = "there is no terminal to ask on" if asks else "with --json nothing is asked"
            self.complain(f"{unconfirmed}: {why}; add --yes to answer yes beforehand")
            return NOBODY_TO_ASK
        print(f"{self.sanitizer.shown(question)} [y/N] ", end="", flush=True)
        if sys.stdin.readline().strip().lower() in ("y", "yes"):
            return None
        self.lines([unconfirmed])
        return 1

    def json(self, document: Mapping[str, Any]) -> None:
        print(self.sanitizer.json(document))

    def data(self, pieces: Iterable[str]) -> None:
        """Print text for another program, which is redacted already; on a terminal, as text of others is shown."""
        for piece in pieces:
            sys.stdout.write(self.sanitizer.shown(piece) if _is_terminal() else piece)


def terminal_columns() -> int | None:
    """Return the width of the terminal, None if standard output is none."""
    return shutil.get_terminal_size().columns if _is_terminal() else None


def has_colours(color: Color, environ: Mapping[str, str], *, terminal: bool) -> bool:
    """Return True if output has colours, by the rules of pytest.

    >>> has_colours("auto", {"NO_COLOR": "1"}, terminal=True), has_colours("auto", {"FORCE_COLOR": "1"}, terminal=False)
    (False, True)
    """
    if color != "auto":
        return color == "yes"
    if (wanted := environ.get("PY_COLORS")) in ("0", "1"):
        return wanted == "1"
    if environ.get("NO_COLOR") or environ.get("FORCE_COLOR"):
        return not environ.get("NO_COLOR")
    return terminal and environ.get("TERM") != "dumb"


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
