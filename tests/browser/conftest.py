"""Fixtures of the tests in a real browser. They are slow, and fail if there is no browser.

A test gets `pages`, opens what it wants in it, and fails at its end if a page raised, complained, opened a dialog, or
asked anybody outside.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Browser, sync_playwright

from benchmarks.viewer_runs import BEGAN, SyntheticRun, write_run
from tests.browser import canary as canaries
from tests.browser import chromium
from tests.browser.canary import Canary
from tests.browser.pages import Pages
from tests.browser.viewed import KILLED, NOW, PAIRED, THEN, Viewed, write_report
from tests.cli.dashboards import RunningDashboard
from tests.cli.dashboards import dashboard as dashboard_of

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave everything that needs a browser to `make test-all`."""
    for item in items:
        if item.path.is_relative_to(HERE) and "browser" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


# The package has one browser, not the session: while Playwright is open, its event loop counts as running in this
# thread, and asynchronous tests of other folders could not run in this process.
@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """The browser, which stays open for all tests of this folder."""
    path = chromium.executable()
    with sync_playwright() as playwright:
        # Root has no sandbox of its own. /dev/shm is small in containers.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@pytest.fixture(scope="session")
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


@pytest.fixture(scope="session")
def viewed(tmp_path_factory: pytest.TempPathFactory) -> Viewed:
    """A workspace with eval runs of one eval, and a report on two of them. No test changes it."""
    root = tmp_path_factory.mktemp("viewed")
    write_run(root, SyntheticRun(THEN, rows=30, n=3))
    write_run(
        root, SyntheticRun(PAIRED, rows=30, n=2, seed=1, baseline="openai/gpt-5-nano", began=BEGAN + timedelta(1))
    )
    write_run(root, SyntheticRun(KILLED, rows=30, n=3, seed=2, began=BEGAN + timedelta(2)), until=100)
    write_run(root, SyntheticRun(NOW, rows=30, n=3, seed=3, share=0.4, began=BEGAN + timedelta(3)))
    return Viewed(root, write_report(root, root / "report.html", [THEN, NOW]))


@pytest.fixture(scope="package")
def dashboard(viewed: Viewed) -> Iterator[RunningDashboard]:
    with dashboard_of(viewed.root, "--no-open") as dashboard:
        yield dashboard
