"""Output of the commands: standard output through the sanitizer, in colours and through a pager if it is a terminal.

Colours follow pytest's rules: `--color` counts first, then PY_COLORS, NO_COLOR and FORCE_COLOR, then the terminal. The
pager is chosen as git does: PAGER, else less, and LESS=FRX unless LESS is set, so that a page that fits is printed.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pytest_osmosis.report.style import ansi, painted
from pytest_osmosis.text.redaction import Sanitizer

Color = Literal["auto", "yes", "no"]
DEFAULT_PAGER = "less"
NO_PAGER = ("", "cat")
NOBODY_TO_ASK = 2
"""The exit status if a question needs an answer, and there is no terminal."""


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """Prints for one command: text through `sanitizer`, in colours, long pages through a pager if `paged`."""

    sanitizer: Sanitizer
    color: Color = "auto"
    paged: bool = False

    def lines(self, lines: Iterable[str], pager: str | None = None) -> None:
        """Print lines as they come, or through a pager."""
        colours = has_colours(self.color, os.environ, terminal=_is_terminal())
        texts = (painted(line, self.sanitizer.shown, ansi if colours else lambda text, _: text) for line in lines)
        if pager is not None:
            _page(list(texts), pager)
        for text in texts:
            print(text)

    def live(self, lines: Iterable[str]) -> None:
        """Print lines at once, although more may follow later."""
        self.lines(lines)
        sys.stdout.flush()

    def complain(self, text: object) -> None:
        """Print an error."""
        print(self.sanitizer.shown(str(text)), file=sys.stderr)

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

    def page(self, lines: Iterable[str]) -> None:
        """Print a page, through the user's pager unless an option or the user's environment says otherwise."""
        self.lines(lines, pager_command(os.environ) if self.paged and _is_terminal() else None)

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


def pager_command(environ: Mapping[str, str]) -> str | None:
    """Return the command of the user's pager, None for no pager or one that is not installed.

    >>> pager_command({"PAGER": "cat"}), pager_command({"PAGER": "no-such-pager -R"})
    (None, None)
    """
    pager = environ.get("PAGER", DEFAULT_PAGER).strip()
    if pager in NO_PAGER or environ.get("TERM") == "dumb":
        return None
    try:
        program, *_ = shlex.split(pager)
    except ValueError:  # a quote without its end
        return None
    return pager if shutil.which(program) else None


def _page(lines: Iterable[str], pager: str) -> None:
    """Write lines to a pager and wait until the user leaves it. Nothing is said if that is before the last line."""
    environ = {**os.environ, "LESS": os.environ.get("LESS", "FRX"), "LV": os.environ.get("LV", "-c")}
    sys.stdout.flush()
    with subprocess.Popen(
        pager, shell=True, stdin=subprocess.PIPE, text=True, encoding="utf-8", errors="backslashreplace", env=environ
    ) as process:
        try:
            if process.stdin is not None:
                process.stdin.writelines(f"{line}\n" for line in lines)
                process.stdin.close()
        except (BrokenPipeError, KeyboardInterrupt):
            pass
        while process.poll() is None:
            try:
                process.wait()
            except KeyboardInterrupt:  # the pager decides what Ctrl-C means
                continue


def _is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()
