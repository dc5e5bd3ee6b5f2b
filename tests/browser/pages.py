"""Pages in the browser, and all that went wrong in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Dialog, Error, Page, expect

from tests.browser.canary import Canary

Theme = Literal["light", "dark"]
WIDE, NARROW = 1280, 400
DEADLINE_MS = 60_000
"""The time that a page may take on a loaded machine."""

expect.set_options(timeout=DEADLINE_MS)

FRAMES = "new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(resolve))))"


def settled(page: Page) -> None:
    """Wait until the view is laid out, with all that it asked for."""
    page.locator("main").wait_for()
    page.evaluate(FRAMES)  # an address that was just set is rendered
    expect(page.locator(".loading")).to_have_count(0)
    page.evaluate(FRAMES)


def go(page: Page, view: str) -> None:
    """Go to a view, "run/NAME", within the page, and wait until it is laid out."""
    page.evaluate("(address) => { location.hash = address }", f"#/{view}")
    settled(page)


@dataclass
class Faults:
    """Things that a page must never do: raise, complain, open a dialog, or try what its policy refuses."""

    errors: list[str] = field(default_factory=list)
    dialogs: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    """Complaints of the policy: something tried, and was kept from it."""

    def watch(self, page: Page) -> None:
        """Collect the faults of a page from now on."""
        page.on("pageerror", self._raised)
        page.on("console", self._said)
        page.on("dialog", self._opened)

    def _raised(self, error: Error) -> None:
        self.errors.append(f"raised: {error}")

    def _said(self, message: ConsoleMessage) -> None:
        if message.type not in ("error", "warning"):
            return
        about_policy = "Content Security Policy" in message.text or "Trusted" in message.text
        (self.refused if about_policy else self.errors).append(message.text)

    def _opened(self, dialog: Dialog) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def __bool__(self) -> bool:
        return bool(self.errors or self.dialogs or self.refused)


class Pages:
    """Opens pages, each in a context of its own: fresh storage, and no way out but to the canary.

    All requests go to the canary, which is set as proxy, but for those to `server` ("127.0.0.1:8000").
    """

    def __init__(self, browser: Browser, canary: Canary) -> None:
        self.faults = Faults()
        self._browser = browser
        self._canary = canary
        self._contexts: list[BrowserContext] = []

    def page(
        self, *, theme: Theme = "light", width: int = WIDE, height: int = 900, server: str = "", **options: Any
    ) -> Page:
        """Return an empty page in a context of its own."""
        context = self._browser.new_context(
            viewport={"width": width, "height": height},
            color_scheme=theme,
            proxy={"server": self._canary.url, "bypass": ",".join(filter(None, ("<-loopback>", server)))},
            **options,
        )
        self._contexts.append(context)
        context.set_default_timeout(DEADLINE_MS)
        page = context.new_page()
        self.faults.watch(page)
        return page

    def open(self, address: str, **options: Any) -> Page:
        page = self.page(**options)
        page.goto(address)
        return page

    def close(self) -> None:
        for context in self._contexts:
            context.close()
