"""Measurements of one page in a real browser: when its first row is shown, what opening a conversation takes, its heap.

Times are taken in the page, from one frame to the next, so that the way to the browser's process does not count.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright

from tests.browser import chromium
from tests.browser.canary import Canary

DEADLINE_MS = 600_000
SEEN = """
(() => {
  const seen = () => {
    const row = document.querySelector(SELECTOR);
    if (row && row.getClientRects().length) window.firstRowAt = performance.now();
    else requestAnimationFrame(seen);
  };
  requestAnimationFrame(seen);
})();
"""
ACT_AND_SEE = """
([act, selector, own]) => new Promise((resolve) => {
  const began = performance.now();
  const seen = () => {
    const found = [...document.querySelectorAll(selector)].some((each) => each.getClientRects().length);
    if (found && document.title.includes(own)) requestAnimationFrame(() => resolve(performance.now() - began));
    else requestAnimationFrame(seen);
  };
  if (act.startsWith("#/")) location.hash = act;
  else document.querySelector(act).click();
  seen();
})
"""
NEXT_CHANGE = """
(selector) => {
  window.changedAt = new Promise((resolve) => {
    const states = () => [...document.querySelectorAll(selector)].map((each) => each.textContent).join();
    const before = states();
    const look = () => states() === before ? requestAnimationFrame(look)
      : requestAnimationFrame(() => resolve(performance.timeOrigin + performance.now()));
    look();
  });
}
"""


SEARCH = """
(query) => new Promise((resolve) => {
  const began = performance.now();
  let first = null;
  const look = () => {
    const said = document.querySelector(".query-search")?.textContent ?? "";
    if (first === null && /: [1-9][0-9,]* runs? ha/.test(said)) first = performance.now() - began;
    if (said.includes("that were searched")) resolve([first ?? Infinity, performance.now() - began]);
    else requestAnimationFrame(look);
  };
  location.hash = `${location.hash.split("?")[0]}?q=${encodeURIComponent(query)}`;
  look();
})
"""


@dataclass
class Times:
    """The milliseconds that something took, several times."""

    ms: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.ms)

    @property
    def most(self) -> float:
        return max(self.ms)


@contextmanager
def launched() -> Iterator[Browser]:
    """Yield the browser that the tests use."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium.executable(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        browser.close()


@contextmanager
def fresh(
    browser: Browser, canary: Canary, address: str, row: str, *, server: str = ""
) -> Iterator[tuple[Page, float]]:
    """Yield a page in a fresh context, and the milliseconds from navigation to its first visible `row` (a selector)."""
    proxy: Any = {"server": canary.url, "bypass": ",".join(filter(None, ("<-loopback>", server)))}
    context = browser.new_context(viewport={"width": 1280, "height": 900}, proxy=proxy)
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    page.add_init_script(SEEN.replace("SELECTOR", repr(row)))
    page.goto(address, wait_until="commit")
    page.locator(row).first.wait_for()
    first_ms = float(page.evaluate("new Promise((resolve) => requestAnimationFrame(() => resolve(window.firstRowAt)))"))
    try:
        yield page, first_ms
    finally:
        context.close()


def acted(page: Page, act: str, selector: str, *, own: str = "") -> float:
    """Return the milliseconds from an act to an element that it shows, while the page's title has `own` in it.

    The act is an address ("#/run/...") to go to, or a selector to click on.
    """
    return float(page.evaluate(ACT_AND_SEE, [act, selector, own]))


def shown_after(page: Page, act: Callable[[], object]) -> float:
    """Return the milliseconds from the end of an act in this process to the next change of a cell of the grid."""
    page.evaluate(NEXT_CHANGE, "[role=gridcell]")
    act()
    began = time.time() * 1000
    return float(page.evaluate("window.changedAt")) - began


def searched(page: Page, text: str) -> tuple[float, float]:
    """Return the milliseconds from the query for a text in conversations to its first hit, and to its end."""
    first_ms, over_ms = page.evaluate(SEARCH, f'"{text}"')
    return float(first_ms), float(over_ms)


def heap_mb(page: Page) -> float:
    """Return the size of a page's heap of JavaScript after a collection, in MB."""
    session = page.context.new_cdp_session(page)
    session.send("HeapProfiler.collectGarbage")
    session.send("Performance.enable")
    metrics = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
    session.detach()
    return float(metrics["JSHeapUsedSize"]) / 1e6
