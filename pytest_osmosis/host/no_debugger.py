"""Makes `breakpoint()` an error in an engine host, which has no terminal; the error points to --osmosis-inline."""

from __future__ import annotations

import os
import sys

NO_TERMINAL = "breakpoint() has no terminal here; add --osmosis-inline"


def install() -> None:
    """Make `breakpoint()` raise, unless PYTHONBREAKPOINT says what it should do."""
    if not os.environ.get("PYTHONBREAKPOINT"):
        sys.breakpointhook = _raise


def _raise(*_args: object, **_options: object) -> None:
    raise RuntimeError(NO_TERMINAL)
