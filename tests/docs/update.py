"""`python -m tests.docs.update [PAGE ...]`: put what commands print now into the output blocks of pages.

Lines `...` stay. The text between them is matched by its most similar first and last line, so review the diff.
The blocks of translations are copied from their originals.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.docs.blocks import PAGES, REPOSITORY
from tests.docs.printed import difference, updated
from tests.docs.test_translations import TRANSLATIONS, original_of, with_code_of
from tests.docs.walk import Page


def update(path: Path) -> list[str]:
    """Rewrite the outdated outputs of a page; return a line for each, and the page's other problems."""
    with tempfile.TemporaryDirectory() as folder:
        page = Page(path, Path(folder).resolve())
        page.walk()
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    stale = [(block, printed) for block, printed in page.outputs if difference(block.text, printed)]
    for block, printed in reversed(stale):
        start, n = block.line - 1, len(block.text.splitlines())
        lines[start : start + n] = updated(block.text, printed).splitlines(keepends=True)
    path.write_text("".join(lines), encoding="utf-8")
    rewritten = tuple(f"{block.where}:" for block, _ in stale)
    return [f"{block.where}: rewritten" for block, _ in stale] + [
        problem for problem in page.problems if not problem.startswith(rewritten or ("\0",))
    ]


def copy_code(translation: Path) -> list[str]:
    """Copy the blocks of its original into a translation; return a line if they are not as many."""
    texts = [page.read_text(encoding="utf-8") for page in (original_of(translation), translation)]
    try:
        translation.write_text(with_code_of(*texts), encoding="utf-8")
    except ValueError as error:
        return [f"{translation.relative_to(REPOSITORY)}: {error}"]
    return []


def main(names: list[str]) -> None:
    paths = [Path(name).resolve() for name in names] or PAGES
    for path in paths:
        for line in [] if path in TRANSLATIONS else update(path):
            print(line)
    for translation in TRANSLATIONS:
        if translation in paths or original_of(translation) in paths:
            for line in copy_code(translation):
                print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
