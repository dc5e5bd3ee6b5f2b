"""The generated pages of docs/reference are up to date."""

from __future__ import annotations

import pytest

from docs.generate import DOCS, PAGES


@pytest.mark.parametrize("name", PAGES)
def test_a_generated_page_is_up_to_date(name: str) -> None:
    committed = (DOCS / name).read_text(encoding="utf-8")

    assert committed == PAGES[name](), "run python docs/generate.py"
