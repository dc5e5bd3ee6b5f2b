"""README and docs are right: configs load, code runs, and commands print the output on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, REPOSITORY, blocks_of
from tests.docs.translations import TRANSLATIONS
from tests.docs.walk import Page

WITH_BLOCKS = [page for page in PAGES if blocks_of(page) and page not in TRANSLATIONS]


JOURNEYS = {"README.md", "docs/tutorial/first-eval.md"}


def _name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def _types_commands(page: Path) -> bool:
    """Return True if walking a page starts pytest or one of our commands."""
    typed = {("console", "run"), ("console", "list"), ("console", "check"), ("yaml", "file")}
    return any((block.language, block.way) in typed for block in blocks_of(page))


def _parameter(page: Path) -> pytest.ParameterSet:
    """Return a page to walk. `make test` walks those that start nothing, and the journeys."""
    name = _name(page)
    if name in JOURNEYS:
        return pytest.param(page, id=name, marks=pytest.mark.journey)
    return pytest.param(page, id=name, marks=[pytest.mark.slow] if _types_commands(page) else [])


@pytest.mark.parametrize("path", [_parameter(page) for page in WITH_BLOCKS])
def test_a_page_is_right(path: Path, tmp_path: Path) -> None:
    page = Page(path, tmp_path)
    page.walk()

    assert not page.problems, "\n\n".join(page.problems)


def test_every_block_says_how_it_is_tested() -> None:
    untested = [f"{block.where}: {block.problem}" for page in PAGES for block in blocks_of(page) if block.problem]

    assert untested == []


def test_the_pages_that_are_named_here_exist() -> None:
    assert {_name(page) for page in WITH_BLOCKS} >= JOURNEYS
