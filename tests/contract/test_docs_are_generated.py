"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

import pytest

import pytest_osmosis
from docs.generate import DOCS, IN_CHINESE, PAGES
from docs.pages import api, chinese


@pytest.mark.addon  # they have the commands of add-ons
@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")

    assert committed == PAGES[name](), "run python docs/generate.py"


@pytest.mark.addon
def test_the_table_of_chinese_sentences_has_those_of_the_pages_and_no_others() -> None:
    asked: dict[str, str] = {}
    for name in IN_CHINESE:
        chinese.translated(PAGES[name](), lambda sentence: asked.setdefault(sentence, sentence))

    assert chinese.sentences().keys() == asked.keys()


def test_the_api_page_has_every_public_name_once() -> None:
    shown = [name for section in api.SECTIONS for name in section.names]

    assert sorted(shown) == sorted(set(pytest_osmosis.__all__) - {"__version__"})


@pytest.mark.addon
def test_every_public_name_has_a_docstring_of_its_own() -> None:
    shown = {name: getattr(pytest_osmosis, name) for section in api.SECTIONS for name in section.names}

    assert [name for name, value in shown.items() if not api.text_of(value.__doc__ or "")] == []
    assert [name for name, value in shown.items() if (value.__doc__ or "").startswith(f"{name}(")] == []
