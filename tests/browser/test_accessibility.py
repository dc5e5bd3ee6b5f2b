"""Views can be used by everybody: axe finds nothing in either theme, nothing scrolls a narrow page sideways, keys reach
every control, and links lead somewhere.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.pages import NARROW, WIDE, Pages, Theme, go, settled
from tests.browser.viewed import NOW, VIEWS, Viewed

AXE = (resources.files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
RUN = f"axe.run(document, {{runOnly: {RULES}, resultTypes: ['violations']}})"
TOO_WIDE = """
() => {
  const width = document.documentElement.clientWidth;
  if (document.documentElement.scrollWidth <= width) return [];
  return [...document.querySelectorAll("body *")].filter((each) => each.getBoundingClientRect().right > width + 1)
    .map((each) => `${each.localName}.${each.className}`).slice(0, 9);
}
"""
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


def problems(page: Page) -> list[str]:
    """Return what axe finds in the page: each rule that is broken, with an element."""
    page.evaluate(AXE)  # not a script element, which the policy refuses
    found: dict[str, Any] = page.evaluate(RUN)
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}: {node.get('failureSummary', '')}"
        for rule in found["violations"]
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", WIDE), ("dark", NARROW), ("light", WIDE // 2)])
def test_axe_finds_nothing(pages: Pages, viewed: Viewed, theme: Theme, width: int) -> None:
    page = pages.open(viewed.address(""), theme=theme, width=width)
    found: dict[str, list[str]] = {}
    for name, view in VIEWS.items():
        go(page, view)
        found |= {name: [*problems(page), *page.evaluate(TOO_WIDE)]}
    go(page, VIEWS["comparison"])
    page.locator(".compared-rows a").first.click()
    settled(page)
    found |= {"two runs": [*problems(page), *page.evaluate(TOO_WIDE)]}
    page.get_by_role("button", name="Keys").click()
    found |= {"help": problems(page)}

    lines = [f"{name}: {each}" for name, many in found.items() for each in many]
    assert not lines, "\n".join(lines)


def test_nothing_moves_for_who_wants_no_motion(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(VIEWS["runs"]), reduced_motion="reduce")
    settled(page)

    moving = page.evaluate("document.getAnimations().filter((each) => each.playState === 'running').length")

    assert moving == 0


def test_help_lists_the_keys_of_the_view(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(VIEWS["conversation"]))
    settled(page)

    page.keyboard.press("?")

    help = page.get_by_role("dialog")
    expect(help).to_be_visible()
    for key in ("j", "k", "h", "l", "n", "p", "y", "/", "Enter", "Esc"):
        expect(help.locator("kbd").filter(has_text=re.compile(rf"^{re.escape(key)}$")).first).to_be_visible()
    page.keyboard.press("Escape")
    expect(help).to_have_count(0)
    expect(page).to_have_url(re.compile("row0-run0"))


def test_tab_reaches_every_control_and_focus_is_seen(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(f"run/{NOW}"))
    settled(page)
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
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
