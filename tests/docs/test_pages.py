"""README and docs are right: configs load, code runs, and commands print the output on the page."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import PAGES, REPOSITORY, blocks_of
from tests.docs.translations import TRANSLATIONS
from tests.docs.walk import Page

WITH_BLOCKS = [page for page in PAGES if blocks_of(page) and page not in TRANSLATIONS]


def _name(page: Path) -> str:
    return page.relative_to(REPOSITORY).as_posix()


def _parameter(page: Path) -> pytest.ParameterSet:
    """Return a page to walk. There are many guides, and only `make test-all` walks them."""
    return pytest.param(page, id=_name(page), marks=[pytest.mark.slow] if page.parent.name == "how-to" else [])


@pytest.mark.parametrize("path", [_parameter(page) for page in WITH_BLOCKS])
def test_a_page_is_right(path: Path, tmp_path: Path) -> None:
    page = Page(path, tmp_path)
    page.walk()

    assert not page.problems, "\n\n".join(page.problems)


def test_every_block_says_how_it_is_tested() -> None:
    untested = [f"{block.where}: {block.problem}" for page in PAGES for block in blocks_of(page) if block.problem]

    assert untested == []


def test_the_main_pages_are_walked() -> None:
    walked = {_name(page) for page in WITH_BLOCKS}

    assert {"README.md", "docs/tutorial/first-eval.md"} <= walked
