"""Write the generated pages of docs/reference: `python docs/generate.py`, after a key, an option or a format changed.

A test checks that the committed pages are up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent
if str(DOCS.parent) not in sys.path:  # when run as a file
    sys.path.insert(0, str(DOCS.parent))

from docs.pages import command_line, config_keys, hooks, providers, results_keys  # noqa: E402

PAGES: Mapping[str, Callable[[], str]] = {
    "reference/config.md": config_keys.page,
    "reference/command-line.md": command_line.page,
    "reference/hooks.md": hooks.page,
    "reference/providers.md": providers.page,
    "reference/results.md": results_keys.page,
}
"""Each page's path under docs/, and the function that returns its text."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
