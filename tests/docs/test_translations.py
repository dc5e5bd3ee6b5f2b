"""Every page of docs/zh has the structure, the code and the links of its original, so that neither changes alone."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path

from tests.docs.blocks import REPOSITORY
from tests.docs.translations import TRANSLATIONS, code, expected_links, linked, names, original_of, outline

UPDATE = "run python -m tests.docs.update with the path of this page"


def problems(page: Path) -> Iterator[str]:
    """Yield in what a translation differs from its original."""
    original = original_of(page)
    if not original.exists():
        yield "it has no original"
        return
    here, there = (path.read_text(encoding="utf-8") for path in (page, original))
    if differing := changes(outline(there), outline(here)):
        yield f"its headings, blocks, tables and lists differ: {differing}"
    if code(here) != code(there):
        yield f"its code differs; {UPDATE}"
    if differing := changes(sorted(names(there).elements()), sorted(names(here).elements())):
        yield f"the names in its prose differ: {differing}"
    if differing := changes(sorted(expected_links(original).elements()), sorted(linked(page).elements())):
        yield f"its links differ: {differing}"


def changes(original: list[str], translation: list[str]) -> list[str]:
    """Return what a translation lacks ("- x") and what it has beyond its original ("+ x")."""
    return [line for line in difflib.ndiff(original, translation) if line[0] in "-+"]


def test_each_translation_has_the_structure_code_names_and_links_of_its_original() -> None:
    found = [f"{page.relative_to(REPOSITORY)}: {problem}" for page in TRANSLATIONS for problem in problems(page)]

    assert TRANSLATIONS
    assert not found, "\n".join(found)
