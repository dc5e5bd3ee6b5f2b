"""`python -m tests.docs.update [PAGE ...]`: put what commands print now into the output blocks of pages.

Lines that say `...` stay, and what stands between them is found again by its first and last line: look at the diff.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import PAGES
from tests.docs.printed import brought_up_to_date, difference
from tests.docs.walk import Page


def update(path: Path) -> list[str]:
    """Rewrite a page's outputs that are not so any more; gives what else is wrong with it."""
    with tempfile.TemporaryDirectory() as folder:
        page = Page(path, Path(folder).resolve())
        page.walk()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    stale = [(block, printed) for block, printed in page.outputs if difference(block.text, printed)]
    for block, printed in reversed(stale):
        start, n = block.line - 1, len(block.text.splitlines())
        lines[start : start + n] = brought_up_to_date(block.text, printed).splitlines(keepends=True)
    path.write_text("".join(lines), encoding="utf-8")
    mended = tuple(f"{block.where}:" for block, _ in stale)
    return [f"{block.where}: rewritten" for block, _ in stale] + [
        found for found in page.problems if not found.startswith(mended or ("\0",))
    ]


def main(names: list[str]) -> None:
    """Update the named pages, or all."""
    for path in [Path(name).resolve() for name in names] or PAGES:
        for line in update(path):
            print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
