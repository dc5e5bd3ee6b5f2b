"""Every page of docs/zh has the structure, the code and the links of its original, so that neither changes alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.blocks import REPOSITORY
from tests.docs.translations import (
    TRANSLATIONS,
    code,
    expected_links,
    linked,
    names,
    original_of,
    outline,
    with_code_of,
)

EACH = pytest.mark.parametrize("page", TRANSLATIONS, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
UPDATE = "run python -m tests.docs.update with the path of this page"


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@EACH
def test_a_translation_has_an_original(page: Path) -> None:
    assert original_of(page).exists()


@EACH
def test_a_translation_has_the_headings_blocks_tables_and_lists_of_its_original(page: Path) -> None:
    assert outline(read(page)) == outline(read(original_of(page)))


@EACH
def test_a_translation_shows_the_code_of_its_original(page: Path) -> None:
    assert code(read(page)) == code(read(original_of(page))), UPDATE


@EACH
def test_a_translation_names_what_its_original_names(page: Path) -> None:
    assert names(read(page)) == names(read(original_of(page)))


@EACH
def test_a_translation_links_what_its_original_links(page: Path) -> None:
    assert linked(page) == expected_links(original_of(page))


@pytest.mark.parametrize(
    "changed",
    [
        "# A\n\n### B\n\n- x\n- y\n\n```python run\n1\n```\n\n| a |\n|---|\n",
        "# A\n\n- x\n- y\n\n```python run\n1\n```\n\n| a |\n|---|\n",
        "# A\n\n## B\n\n- x\n\n```python run\n1\n```\n\n| a |\n|---|\n",
        "# A\n\n## B\n\n- x\n- y\n\n```python file=x.py\n1\n```\n\n| a |\n|---|\n",
        "# A\n\n## B\n\n- x\n- y\n\n```python run\n1\n```\n\n| a |\n|---|\n| b |\n",
    ],
)
def test_a_change_of_structure_is_noticed(changed: str) -> None:
    assert outline(changed) != outline("# A\n\n## B\n\n- x\n- y\n\n```python run\n1\n```\n\n| a |\n|---|\n")


def test_blocks_are_copied_into_a_translation() -> None:
    original = "# A\n\n```python run\n1\n```\n\n```text output\n2\n```\n"

    assert with_code_of(original, "# 一\n\n```\n```\n\n好\n\n```\nx\n```\n") == (
        "# 一\n\n```python run\n1\n```\n\n好\n\n```text output\n2\n```\n"
    )
    with pytest.raises(ValueError, match="1 blocks instead of 2"):
        with_code_of(original, "# 一\n\n```\n```\n")
