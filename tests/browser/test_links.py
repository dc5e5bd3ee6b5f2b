"""Each view, row, filter and order has a link that opens the same in a fresh page."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import Pages, go, settled
from tests.browser.viewed import VIEWS, Viewed

FOLLOWED = 4
"""Links of each kind that are followed: those of a column lead to the same kind of view."""
LINKS = """
() => {
  const kinds = {};
  for (const each of document.querySelectorAll('main a[href^="#/"]')) {
    const kind = each.closest("[class]").className + each.getAttribute("href").replace(/[^/?]+/g, "");
    (kinds[kind] ??= []).push(each.getAttribute("href"));
  }
  return Object.values(kinds).flatMap((each) => each.slice(0, FOLLOWED));
}
""".replace("FOLLOWED", str(FOLLOWED))


def shown(page: Page) -> str:
    """Return all that a reader sees in the view."""
    settled(page)
    return page.locator("main").inner_text()


@pytest.mark.parametrize("view", ["list", "runs", "slices", "comparison", "history"])
def test_links_in_a_view_lead_somewhere(pages: Pages, viewed: Viewed, view: str) -> None:
    page = pages.open(viewed.address(VIEWS[view]))
    settled(page)
    links = page.evaluate(LINKS)
    assert links or view == "slices"
    for link in links:
        go(page, link.removeprefix("#/"))
        expect(page.get_by_role("alert")).to_have_count(0)
        assert page.evaluate("location.hash") == link
