"""Hostile texts in every field are shown as they are, and nothing else: in a report, and in any host."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.acting import assigned_html, foreign, open_all
from tests.browser.canary import Canary
from tests.browser.dashboards import write_report
from tests.browser.hostile_texts import ROW_OF_ESCAPES, hostile_run, texts
from tests.browser.pages import Pages
from tests.cli.dashboards import dashboard as dashboard_of

CONVERSATION = "article.conversation"
FEWEST_PLACES = 9
"""The messages, the answer, the call and its result, the reason, the output: each shows the text of its row."""


@pytest.fixture(scope="session")
def hostile(tmp_path_factory: pytest.TempPathFactory, canary_server: Canary) -> Path:
    """The directory of an eval run with hostile texts, in a folder that has one for a name."""
    root = tmp_path_factory.mktemp("hostile") / "<img src=x onerror=acted=1>"
    root.mkdir()
    return hostile_run(root, canary_server.url)


@pytest.fixture(scope="session")
def report(hostile: Path) -> Path:
    return write_report(hostile.parents[2], hostile.parents[2] / "report.html", [hostile.name])


def conversation(page: Page, name: str, run: str, query: str = "") -> str:
    """Go to a conversation, open all that is folded, and return its text."""
    page.evaluate("(address) => { location.hash = address }", f"#/run/{name}/{run}{query}")
    expect(page).to_have_title(re.compile(rf"\b{run}\b"))
    shown = page.locator(CONVERSATION)
    shown.locator(".messages").wait_for(state="attached")
    open_all(page)
    return shown.evaluate("(element) => element.textContent") or ""


def test_a_report_shows_texts_as_they_are(pages: Pages, report: Path, hostile: Path, canary: Canary) -> None:
    page = pages.open(report.as_uri())
    page.get_by_role("grid").or_(page.get_by_role("table")).first.wait_for()
    assert foreign(page) == []
    for row, text in enumerate(texts(canary.url)):
        shown = conversation(page, hostile.name, f"row{row}-run0")
        assert shown.count(text) >= FEWEST_PLACES, (row, text, shown)
        failed = conversation(page, hostile.name, f"row{row}-run1")
        assert f"ValueError: {text}" in failed, (row, text, failed)
        conversation(page, hostile.name, f"row{row}-run0", "?text=markdown")
        assert foreign(page) == []
    assert not pages.faults
    assert assigned_html(page) == ["TypeError", "TypeError"]
    assert all("TrustedHTML" in each for each in pages.faults.refused)
    pages.faults.refused.clear()


def test_characters_that_nobody_sees_are_shown_as_escapes(pages: Pages, report: Path, hostile: Path) -> None:
    page = pages.open(report.as_uri())
    for row in ROW_OF_ESCAPES:
        for run in ("run0", "run1"):
            shown = conversation(page, hostile.name, f"row{row}-{run}")
            assert not re.search(
                "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]", shown
            )
            assert re.search(r"\\x[01]|\\u20|\\ufeff", shown)


def test_a_folder_whose_name_is_no_text_hides_no_other(pages: Pages, hostile: Path, tmp_path: Path) -> None:
    runs = tmp_path / ".osmosis/runs"
    for name in (b"fine", b"bad\xff"):
        shutil.copytree(hostile, runs / os.fsdecode(name))
    with dashboard_of(tmp_path, "--no-open") as dashboard:
        page = pages.open(dashboard.address(), server=dashboard.server)
        expect(page.get_by_role("link", name="fine", exact=True)).to_be_visible()
        page.close()  # before the dashboard, for which it would ask


def test_a_report_can_be_read_without_scripts(pages: Pages, report: Path, canary: Canary) -> None:
    page = pages.open(report.as_uri(), java_script_enabled=False)

    shown = page.locator("body").inner_text()

    assert "pass rate" in shown
    assert texts(canary.url)[0][:20] in shown


@pytest.mark.parametrize("sandbox", ["allow-scripts", ""])
def test_a_report_works_in_a_sandbox(pages: Pages, report: Path, tmp_path: Path, sandbox: str) -> None:
    """Hosts of files show them in frames without an origin: storage throws there."""
    host = tmp_path / "host.html"
    host.write_text(f'<iframe sandbox="{sandbox}" src="{report.as_uri()}" width=1200 height=800></iframe>')

    frame = pages.open(host.as_uri()).frame_locator("iframe")

    expect(frame.locator("main" if sandbox else "#static")).to_contain_text("pass rate", ignore_case=True)
    if not sandbox:  # a browser says in its console that it ran nothing
        assert all("sandboxed" in each for each in pages.faults.errors)
        pages.faults.errors.clear()
