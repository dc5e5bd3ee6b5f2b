"""Debuggers in an engine host: it has no terminal, so `breakpoint()` is an error that says where there is one."""

from __future__ import annotations

import os
import sys

NO_TERMINAL = "a debugger finds no terminal in an engine host; run the eval with --osmosis-inline"


def refuse() -> None:
    """Have `breakpoint()` raise from now on, unless PYTHONBREAKPOINT says what it is to do."""
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _refused


def _refused(*_args: object, **_options: object) -> None:
    raise RuntimeError(NO_TERMINAL)
