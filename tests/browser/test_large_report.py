"""A large report stays small, in the file and in the browser. `benchmarks.viewer` measures one ten times as large."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from benchmarks.viewer_pages import heap_mb
from benchmarks.viewer_runs import SyntheticRun, write_run
from tests.browser.pages import Pages
from tests.browser.viewed import write_report

ROWS, N = 400, 5
MOST_KB_EACH = 3.0
MOST_HEAP_MB = 10
"""Twice what it needs. All conversations, which have 12 MB, would not fit."""
MOST_CELLS = 600
NAME = "support-large"


def test_a_large_report_is_small_and_light(pages: Pages, tmp_path: Path) -> None:
    write_run(tmp_path, SyntheticRun(NAME, rows=ROWS, n=N))
    report = write_report(tmp_path, tmp_path / "report.html", [NAME])
    assert report.stat().st_size <= MOST_KB_EACH * 1000 * ROWS * N

    page = pages.open(f"{report.as_uri()}#/run/{NAME}")
    grid = page.get_by_role("grid")
    expect(page.locator("[aria-label^='row0-run0:']")).to_be_visible()
    assert int(grid.get_attribute("aria-rowcount") or 0) >= ROWS
    assert grid.get_by_role("gridcell").count() <= MOST_CELLS, "only rows in sight are in the document"
    assert heap_mb(page) <= MOST_HEAP_MB

    grid.evaluate("(element) => { element.scrollTop = element.scrollHeight }")
    expect(page.locator(f"[aria-label^='row{ROWS - 1}-run0:']")).to_be_visible()
    assert grid.get_by_role("gridcell").count() <= MOST_CELLS
    for row in range(0, ROWS, ROWS // 8):
        page.evaluate("(address) => { location.hash = address }", f"#/run/{NAME}/row{row}-run1")
        expect(page).to_have_title(f"row{row}-run1 of {NAME} · pytest-osmosis")
        page.locator("article.conversation .messages").wait_for()
    assert heap_mb(page) <= MOST_HEAP_MB
