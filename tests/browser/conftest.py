"""Fixtures of the tests in a real browser. They are slow, and fail if there is no browser.

A test gets `pages`, opens what it wants in it, and fails at its end if a page raised, complained, opened a dialog, or
asked anybody outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.browser import canary as canaries
from tests.browser import chromium
from tests.browser.canary import Canary
from tests.browser.pages import Pages

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave everything that needs a browser to `make test-all`."""
    for item in items:
        if item.path.is_relative_to(HERE) and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


# Of the package, not of the session: while Playwright is open, its event loop counts as running in this thread, and
# asynchronous tests of other folders could not run in this process.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser, which stays open for all tests of this folder."""
    try:
        path = chromium.executable()
    except chromium.BrowserMissing as error:
        pytest.fail(str(error), pytrace=False)
    with sync_playwright() as playwright:
        # Root has no sandbox of its own. /dev/shm is small in containers.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def canary_server() -> Iterator[Canary]:
    with canaries.serving() as canary:
        yield canary


@pytest.fixture
def canary(canary_server: Canary) -> Canary:
    """A server that no page may ask."""
    canary_server.taken()
    return canary_server


@pytest.fixture
def pages(browser: Browser, canary: Canary) -> Iterator[Pages]:
    """Pages of a test, without any fault at its end. A test that expects a fault takes it out of `faults`."""
    pages = Pages(browser, canary)
    yield pages
    pages.close()
    assert not pages.faults, pages.faults
    assert canary.taken() == []
