"""Write the generated pages: `python docs/generate.py`, after a key, an option, a format or SECURITY.md changed.

A test checks that the committed pages are up to date.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent
if str(DOCS.parent) not in sys.path:  # when run as a file
    sys.path.insert(0, str(DOCS.parent))

from docs.pages import (  # noqa: E402
    api,
    chinese,
    command_line,
    config_keys,
    endpoint_keys,
    hooks,
    prime_eval,
    providers,
    results_keys,
)


def security() -> str:
    """Return SECURITY.md, which a site of docs/ alone cannot link, with its table of promises as a list."""
    text = (DOCS.parent / "SECURITY.md").read_text(encoding="utf-8")
    text = text.replace("\n| promise | held by |\n|---|---|\n", "\n").replace(
        "Each promise names tests that hold it.",
        "`SECURITY.md` in the repository names the tests that hold each promise.",
    )
    return re.sub(r"^\| (.+?) \| [^|]* \|$", r"- \1", text, flags=re.MULTILINE)


_ENGLISH: Mapping[str, Callable[[], str]] = {
    "explanation/security.md": security,
    "reference/api.md": api.page,
    "reference/config.md": config_keys.page,
    "reference/command-line.md": command_line.page,
    "reference/endpoints.md": endpoint_keys.page,
    "reference/hooks.md": hooks.page,
    "reference/prime-eval.md": prime_eval.page,
    "reference/providers.md": providers.page,
    "reference/results.md": results_keys.page,
    "reference/training-config.md": config_keys.training_page,
}
IN_CHINESE = ("reference/config.md", "reference/command-line.md")


def _in_chinese(name: str) -> Callable[[], str]:
    return lambda: chinese.page(_ENGLISH[name]())


PAGES: Mapping[str, Callable[[], str]] = {**_ENGLISH, **{f"zh/{name}": _in_chinese(name) for name in IN_CHINESE}}
"""Each page's path under docs/, and the function that returns its text."""


if __name__ == "__main__":
    for name, page in PAGES.items():
        (DOCS / name).write_text(page(), encoding="utf-8")
