"""Translated pages: docs/zh/X.md is docs/X.md in Chinese, and docs/zh/README.md is README.md.

Prose and headings are translated. Code blocks are those of the original, which is walked in place of its translation.
Structure, code and links are the same, so that neither page changes alone.
"""

from __future__ import annotations

import difflib
import posixpath
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from tests.docs.blocks import FENCE, PAGES, REPOSITORY

DOCS = REPOSITORY / "docs"
FOLDER = DOCS / "zh"
README = REPOSITORY / "README.md"
TRANSLATIONS = [page for page in PAGES if FOLDER in page.parents]

COMMENT = re.compile(r"^<!-- .* -->$\n", re.MULTILINE)
HEADING = re.compile(r"^(?P<level>#+) \S")
ITEM = re.compile(r"^ *([-*]|\d+\.) ")
INLINE = re.compile(r"`[^`\n]+`")
SWITCH = re.compile(r"^\[(English|中文)\]\([^)]*\)$", re.MULTILINE)
LINK = re.compile(r"\]\((?P<target>[^)#]+\.md)(#[^)]*)?\)")

ON_THE_SITE = {"SECURITY.md": "docs/explanation/security.md"}
"""The pages of the site that are copies of pages outside docs/. Others outside are not on the site."""


def original_of(translation: Path) -> Path:
    name = translation.relative_to(FOLDER)
    return README if name == Path("README.md") else DOCS / name


def outline(text: str) -> list[str]:
    """Return the parts of a page that its translation shares: headings with their levels, blocks, tables and lists.

    >>> outline("# One\\n\\ntext\\n\\n- a\\n- b\\n\\n| x |\\n|---|\\n| y |\\n")
    ['#', 'list of 2', 'table of 3']
    """
    return list(_parts(text))


def _parts(text: str) -> Iterator[str]:
    shortened = FENCE.sub(lambda fence: f"\n\n```{fence['info']}\n\n", COMMENT.sub("", text))
    for chunk in re.split(r"\n\s*\n", shortened):
        lines = chunk.strip("\n").splitlines()
        if not lines:
            continue
        if lines[0].startswith("```"):
            yield f"block {lines[0][3:]}"
        elif lines[0].startswith("|"):
            yield f"table of {len(lines)}"
        elif heading := HEADING.match(lines[0]):
            yield heading["level"]
        elif items := sum(ITEM.match(line) is not None for line in lines):
            yield f"list of {items}"


def code(text: str) -> list[str]:
    """Return the blocks of a page as they are written, info string included."""
    return [fence[0] for fence in FENCE.finditer(text)]


def names(text: str) -> Counter[str]:
    """Return the names in a page's prose, which no language changes: its inline code, and how often each appears."""
    return Counter(INLINE.findall(FENCE.sub("", text)))


def with_code_of(original: str, translation: str) -> str:
    """Return a translation in which each block is that of the original. Raises ValueError if their numbers differ."""
    blocks = code(original)
    if len(blocks) != len(code(translation)):
        raise ValueError(f"{len(code(translation))} blocks instead of {len(blocks)}")
    following = iter(blocks)
    return FENCE.sub(lambda _: next(following), translation)


def linked(page: Path) -> Counter[str]:
    """Return the pages of the site that a page links, and how often, without the switch to another language."""
    text = SWITCH.sub("", FENCE.sub("", page.read_text(encoding="utf-8")))
    own = page.parent.relative_to(REPOSITORY).as_posix()
    paths = [posixpath.normpath(posixpath.join(own, link["target"])) for link in LINK.finditer(text)]
    on_the_site = [ON_THE_SITE.get(path, path) for path in paths]
    return Counter(path for path in on_the_site if path.startswith("docs/"))


def expected_links(original: Path) -> Counter[str]:
    """Return the pages that a translation of `original` links: a translation wherever there is one."""

    translations = {original_of(page): page.relative_to(REPOSITORY).as_posix() for page in TRANSLATIONS}
    counts: Counter[str] = Counter()
    for path, times in linked(original).items():
        counts[translations.get(REPOSITORY / path, path)] += times
    return counts


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
