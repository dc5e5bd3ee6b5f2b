"""Views can be used by everybody: axe finds nothing in either theme, and nothing scrolls a narrow page sideways."""

from __future__ import annotations

from importlib import resources
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.pages import NARROW, WIDE, Pages, Theme, go, settled
from tests.browser.viewed import VIEWS, Viewed

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


def problems(page: Page) -> list[str]:
    """Return what axe finds in the page: each rule that is broken, with an element."""
    page.evaluate(AXE)  # not a script element, which the policy refuses
    found: dict[str, Any] = page.evaluate(RUN)
    return [
        f"{rule['id']}: {rule['help']}: {node['html'][:200]}: {node.get('failureSummary', '')}"
        for rule in found["violations"]
        for node in rule["nodes"][:3]
    ]


@pytest.mark.parametrize(("theme", "width"), [("light", WIDE), ("dark", NARROW)])
def test_axe_finds_nothing(pages: Pages, viewed: Viewed, theme: Theme, width: int) -> None:
    page = pages.open(viewed.address(""), theme=theme, width=width)
    found: dict[str, list[str]] = {}
    for name, view in VIEWS.items():
        go(page, view)
        found |= {name: [*problems(page), *page.evaluate(TOO_WIDE)]}
    page.get_by_role("button", name="Keys").click()
    found |= {"help": problems(page)}

    lines = [f"{name}: {each}" for name, many in found.items() for each in many]
    assert not lines, "\n".join(lines)


def test_nothing_moves_for_who_wants_no_motion(pages: Pages, viewed: Viewed) -> None:
    page = pages.open(viewed.address(VIEWS["runs"]), reduced_motion="reduce")
    settled(page)

    moving = page.evaluate("document.getAnimations().filter((each) => each.playState === 'running').length")

    assert moving == 0
