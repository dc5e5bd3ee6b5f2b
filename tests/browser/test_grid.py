"""The grid of an eval run: its rows, orders and keys, a conversation to the right of it, and how light a large one is.

`benchmarks.viewer` measures one ten times as large.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from benchmarks.viewer_pages import heap_mb
from benchmarks.viewer_runs import SyntheticRun, write_run
from tests.browser.pages import NARROW, Pages
from tests.browser.run_report import RunReport, ask, counts, field, write_run_report
from tests.browser.viewed import write_report

pytestmark = pytest.mark.slow
N_ROWS, N = 240, 3
LOST = ("failed", "unmeasured")


@pytest.fixture(scope="module")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    return write_run_report(tmp_path_factory.mktemp("grid"), SyntheticRun(rows=N_ROWS, n=N))


def rows(page: Page) -> Locator:
    return page.locator(".grid-row")


def first_row(page: Page) -> Locator:
    return page.locator(".grid-row[aria-rowindex='2']")


def cell(page: Page, id: str) -> Locator:
    return page.locator(f"a[aria-label^='{id}:']")


def id_in_address(page: Page) -> str:
    return page.url.partition("?")[0].rpartition("/")[2]


def evenness(outcomes: list[str]) -> float:
    """Return the share of the rarer of passed and failed."""
    passed, failed = outcomes.count("passed"), outcomes.count("failed")
    return min(passed, failed) / max(1, passed + failed)


def test_the_grid_holds_the_rows_in_sight_and_scrolls_to_the_last(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address())
    grid = page.get_by_role("grid")

    expect(grid).to_have_attribute("aria-rowcount", str(N_ROWS + 1))
    expect(grid).to_have_attribute("aria-colcount", str(N + 2))
    assert rows(page).count() < 60

    grid.evaluate("grid => { grid.scrollTop = grid.scrollHeight; }")

    last = page.locator(f".grid-row[aria-rowindex='{N_ROWS + 1}']")
    expect(last).to_be_visible()
    expect(last.locator(".grid-index")).to_have_text(str(N_ROWS - 1))
    assert rows(page).count() < 60

    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(rows(page)).to_have_count(N_ROWS)
    page.emulate_media(media="print")
    assert grid.evaluate("grid => grid.clientHeight >= grid.scrollHeight"), "all rows are on paper"


def test_cells_say_what_became_of_runs(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address())

    for run in run_report.where(lambda run: run.row < 10):
        score = run.scores["rewards:correct"]
        expected = f"{run.id}: {run.outcome}, {run.boundary if score is None else f'{score:.3f}'}"
        expect(page.get_by_role("link", name=expected, exact=True)).to_be_visible()
    passed = sum(run.outcome == "passed" for run in run_report.where(lambda run: run.row == 1))
    measured = sum(run.outcome != "unmeasured" for run in run_report.where(lambda run: run.row == 1))
    expect(page.locator(".grid-row[aria-rowindex='3'] .grid-tally")).to_have_text(f"{passed}/{measured}")


def test_orders_put_the_right_row_first_and_are_in_the_address(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address())
    by_row: dict[int, list[str]] = {}
    for run in run_report.runs:
        by_row.setdefault(run.row, []).append(run.outcome)
    worst = next(row for row, outcomes in by_row.items() if outcomes == ["failed"] * N)
    mixed = max(by_row, key=lambda row: evenness(by_row[row]))
    slowest = max(run_report.where(lambda run: run.ms is not None), key=lambda run: run.ms or 0).row
    dearest = max(run_report.where(lambda run: run.cost is not None), key=lambda run: run.cost or 0).row

    for order, row in (("worst", worst), ("latency", slowest), ("cost", dearest), ("mixed", mixed), ("index", 0)):
        page.get_by_label("Order").select_option(order)
        expect(first_row(page).locator(".grid-index"), order).to_have_text(str(row))
        if order != "index":
            fresh = pages.open(page.url)
            expect(first_row(fresh).locator(".grid-index"), order).to_have_text(str(row))
            fresh.context.close()


def test_keys_lead_through_the_grid_and_the_conversations(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address())
    first_lost = run_report.where(lambda run: run.outcome in LOST)[0]
    expect(first_row(page)).to_be_visible()

    for keys, focused in (
        *(("j", "row0-run0"), ("j", "row1-run0"), ("l", "row1-run1"), ("ArrowDown", "row2-run1")),
        *(("ArrowUp ArrowLeft", "row1-run0"), ("ArrowRight k", "row0-run1"), ("h", "row0-run0")),
        *(("End", f"row{N_ROWS - 1}-run0"), ("Home", "row0-run0")),
    ):
        for key in keys.split():
            page.keyboard.press(key)
        expect(cell(page, focused), keys).to_be_focused()
    assert page.locator(".grid a[tabindex='0']").count() == 1, "Tab leads to one cell"

    page.keyboard.press("Enter")
    expect(page.locator(".run-conversation")).to_be_visible()
    assert id_in_address(page) == "row0-run0"
    if first_lost.id != "row0-run0":
        page.keyboard.press("n")
        expect(cell(page, first_lost.id)).to_have_attribute("aria-current", "true")
        assert id_in_address(page) == first_lost.id
    page.keyboard.press("j")
    expect(page.locator(".run-conversation h2").first).to_contain_text(f"Row {first_lost.row + 1}")

    page.keyboard.press("Escape")
    expect(page.locator(".run-conversation")).to_have_count(0)
    expect(page.locator(".grid a:focus")).to_have_attribute("tabindex", "0")
    page.keyboard.press("/")
    expect(field(page)).to_be_focused()
    page.keyboard.type("jj")
    expect(counts(page)).to_contain_text("0 of")
    page.keyboard.press("Escape")
    expect(field(page)).not_to_be_focused()


def test_next_failure_follows_the_query_and_the_order(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address(query="sort=latency"))
    slow = run_report.where(lambda run: run.ms is not None and run.ms > 8000 and run.outcome == "failed")
    ask(page, "ms>8000 status:failed")
    field(page).blur()

    seen = []
    for _ in slow:
        page.keyboard.press("n")
        seen.append((page.locator(".grid a:focus").get_attribute("aria-label") or "").partition(":")[0])
    page.keyboard.press("n")

    assert sorted(seen) == sorted(run.id for run in slow)
    expect(page.locator(".grid a:focus")).to_have_attribute("aria-label", f"{seen[-1]}: failed, 0.000")


def test_a_row_beyond_the_first_opens_in_sight_and_an_unknown_run_says_so(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address("row200-run2", "q=row:100-239"))

    open_cell = cell(page, "row200-run2")
    expect(open_cell).to_be_in_viewport()
    expect(open_cell).to_have_attribute("aria-current", "true")
    expect(page.get_by_role("gridcell", selected=True)).to_have_count(1)

    unknown = pages.open(run_report.address("row9999-run0"))

    expect(unknown.locator(".run-conversation")).to_contain_text("no run row9999-run0")
    expect(first_row(unknown)).to_be_visible()


def test_a_narrow_page_shows_the_conversation_in_place_of_the_grid(pages: Pages, run_report: RunReport) -> None:
    page = pages.open(run_report.address(), width=NARROW, height=800)
    expect(first_row(page)).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW

    cell(page, "row1-run1").click()

    expect(page.locator(".run-conversation")).to_be_visible()
    expect(page.get_by_role("grid")).not_to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= NARROW

    page.keyboard.press("Escape")

    expect(cell(page, "row1-run1")).to_be_focused()


def test_if_several_functions_decide_a_cell_shows_the_score_that_did(pages: Pages, tmp_path: Path) -> None:
    made = write_run_report(tmp_path, SyntheticRun(rows=12, n=1, decide="all"))
    page = pages.open(made.address())
    of_the_second = made.where(lambda run: run.outcome == "failed" and run.scores["rewards:correct"] == 1)
    assert of_the_second

    for run in of_the_second:
        expect(cell(page, run.id)).to_have_accessible_name(f"{run.id}: failed, {run.scores['rewards:concise']:.3f}")

    page.get_by_label("Scores").select_option("rewards:correct")

    expect(cell(page, of_the_second[0].id)).to_have_accessible_name(f"{of_the_second[0].id}: failed, 1.000")


MANY = SyntheticRun("support-large", rows=400, n=5)
MOST_KB_EACH = 3.0
MOST_HEAP_MB = 10
"""Twice what it needs. All conversations, which have 12 MB, would not fit."""


def test_a_large_report_is_small_and_light(pages: Pages, tmp_path: Path) -> None:
    write_run(tmp_path, MANY)
    report = write_report(tmp_path, tmp_path / "report.html", [MANY.name])
    assert report.stat().st_size <= MOST_KB_EACH * 1000 * MANY.rows * MANY.n

    page = pages.open(f"{report.as_uri()}#/run/{MANY.name}?sort=index")
    grid = page.get_by_role("grid")
    expect(page.locator("[aria-label^='row0-run0:']")).to_be_visible()
    assert heap_mb(page) <= MOST_HEAP_MB

    grid.evaluate("(element) => { element.scrollTop = element.scrollHeight }")
    expect(page.locator(f"[aria-label^='row{MANY.rows - 1}-run0:']")).to_be_visible()
    for row in range(0, MANY.rows, MANY.rows // 8):
        page.evaluate("(address) => { location.hash = address }", f"#/run/{MANY.name}/row{row}-run1")
        expect(page).to_have_title(f"row{row}-run1 of {MANY.name} · pytest-osmosis")
        page.locator("article.conversation .messages").wait_for()
    assert heap_mb(page) <= MOST_HEAP_MB
