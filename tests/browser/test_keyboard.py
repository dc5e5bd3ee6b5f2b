"""Keys of all views: from the list to a conversation and back, to runs that did not pass, help, and every control."""

from __future__ import annotations

import re

from playwright.sync_api import Page, expect

from tests.browser.pages import Pages, settled
from tests.browser.viewed import NOW, VIEWS, Viewed

OPEN_RUN = re.compile(r"/(row\d+-run\d+)")


def press(page: Page, *keys: str) -> None:
    for key in keys:
        page.keyboard.press(key)


def open_run(page: Page) -> str:
    """Return the name of the run whose conversation is open, by the address."""
    expect(page).to_have_url(OPEN_RUN)
    found = OPEN_RUN.search(page.url)
    assert found
    return found[1]


def test_help_lists_the_keys_of_the_view(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(VIEWS["conversation"]))
    settled(page)

    press(page, "?")

    help = page.get_by_role("dialog")
    expect(help).to_be_visible()
    for key in ("j", "k", "h", "l", "n", "p", "y", "/", "Enter", "Esc"):
        expect(help.locator("kbd").filter(has_text=re.compile(rf"^{re.escape(key)}$")).first).to_be_visible()
    press(page, "Escape")
    expect(help).to_have_count(0)
    expect(page).to_have_url(re.compile("row0-run0"))


def test_tab_reaches_every_control_and_focus_is_seen(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(f"run/{NOW}"))
    settled(page)
    reached = set()
    for _ in range(60):
        press(page, "Tab")
        said = page.evaluate(
            "(() => { const e = document.activeElement; return e === document.body ? '' : "
            "`${e.localName} ${e.getAttribute('aria-label') ?? e.textContent.slice(0, 40)}|`"
            " + getComputedStyle(e).outlineStyle + getComputedStyle(e).boxShadow })()"
        )
        if not said:
            break
        name, _, outline = said.partition("|")
        assert outline != "nonenone", f"no visible focus: {name}"
        reached.add(name.split(" ")[0])
    assert reached >= {"a", "button", "input"}
