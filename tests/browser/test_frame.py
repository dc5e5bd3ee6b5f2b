"""The frame around all views: the list of eval runs, numbers, charts, themes and keys."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from playwright.sync_api import Locator, Page, expect

from pytest_osmosis.addons.viewer.report import ReportedRun, write_report
from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.addons.viewer.shapes import RunPage
from pytest_osmosis.text.numbers import count, money, score, seconds
from pytest_osmosis.text.redaction import Redaction
from tests.browser.pages import Pages, Theme
from tests.cli.dashboards import dashboard
from tests.cli.stored_runs import write_run
from tests.unit.viewer.made_pages import run_entry, run_page


def row(name: str, **values: Any) -> RunEntry:
    return replace(run_entry(name), **{"eval": None, **values})


def report(path: Path, rows: Sequence[RunEntry], pages: Mapping[str, RunPage] | None = None) -> str:
    """Write a report with a list of eval runs, and return its address."""
    reported = [ReportedRun(page, lambda _: None) for page in (pages or {}).values()]
    write_report(path, {"workspace": "w", "runs": rows, "tables": []}, reported, {}, {}, Redaction())
    return path.as_uri()


def drawn(page: Page) -> Locator:
    """Return the chart of points, in view, once it has the width of its place, which it takes a moment after."""
    page.locator(".scatter svg").scroll_into_view_if_needed()
    page.wait_for_function(
        "() => { const chart = document.querySelector('.scatter svg');"
        " return chart && chart.clientWidth === chart.parentElement.clientWidth }"
    )
    return page.locator(".scatter svg")


def test_numbers_are_printed_as_in_the_terminal(pages: Pages, tmp_path: Path) -> None:
    """Ties of rounding go to the even digit, as in Python: 1/16 is 0.062, and not 0.063."""
    chance = random.Random(0)
    rates = [n / 16 for n in range(17)] + [n / 2**k for k in range(5, 12) for n in (1, 3, 5)] + [chance.random()] * 50
    costs = [0.0, 0.994, 0.995, 0.00125, 0.125, 1.005, 1234.5] + [10 ** chance.uniform(-6, 4) for _ in rates]
    times = [994.9, 995, 59_949, 59_950, 90_500, 3_599_600, 7_300_000] + [10 ** chance.uniform(0, 8) for _ in rates]
    rows = [
        row(f"run{at}", pass_rate=rate, cost_usd=costs[at], duration_s=times[at] / 1000, tokens=10**at % 10**9)
        for at, rate in enumerate(rates)
    ]

    page = pages.open(report(tmp_path / "report.html", rows))

    page.locator("a.run-link").first.wait_for()
    cells = page.locator(".runs-table tbody tr").evaluate_all(
        "rows => rows.map(row => ['.rate-value', '.run-cost', '.run-time']"
        ".flatMap(name => row.querySelector(name).innerText.split('\\n').filter(Boolean)))"
    )
    assert [(rate, cost, tokens, time) for rate, cost, tokens, _, time in cells] == [
        (
            score(each.pass_rate),
            money(each.cost_usd or 0.0),
            f"{count(each.tokens or 0)} token{'' if each.tokens == 1 else 's'}",
            seconds(each.duration_s or 0.0),
        )
        for each in rows
    ]


def test_filters_order_and_ticks_open_the_same_in_a_fresh_page(pages: Pages, tmp_path: Path) -> None:
    rows = [
        row(f"run{at}", status="stopped" if at % 3 == 0 else "finished", model=f"m{at % 2}", pass_rate=at / 10)
        for at in range(10)
    ]
    page = pages.open(report(tmp_path / "report.html", rows))

    page.get_by_label("status", exact=True).select_option("finished")
    page.get_by_role("button", name="pass rate").click()
    page.get_by_role("button", name="pass rate").click()

    expect(page.locator("a.run-link")).to_have_text(["run8", "run7", "run5", "run4", "run2", "run1"])

    page.get_by_label("filter by name").fill("m0")
    page.get_by_label("compare run8").check()
    page.get_by_label("compare run2").check()

    expect(page.locator("a.run-link")).to_have_text(["run8", "run4", "run2"])
    expect(page.get_by_role("region", name="Compare")).to_contain_text("run2 compared with run8")
    fresh = pages.open(page.url)
    expect(fresh.locator("a.run-link")).to_have_text(["run8", "run4", "run2"])
    expect(fresh.get_by_text("3 of 10 eval runs")).to_be_visible()
    expect(fresh.get_by_role("region", name="Compare")).to_contain_text("run2 compared with run8")


def test_the_list_shows_gates_on_a_tablet_and_tells_the_ticked_ones_apart(pages: Pages, tmp_path: Path) -> None:
    rows = [row(f"sums-20261122T14030{at}Z-abcdef", eval="sums", model=f"openai/model-{at}") for at in range(2)]
    page = pages.open(report(tmp_path / "report.html", rows), width=768)

    chip = page.locator(".chip-failed").first
    assert chip.evaluate("chip => chip.getBoundingClientRect().right") < 768, "in sight"
    for each in page.get_by_role("checkbox").all():
        each.check()
    said = re.compile("sums openai/model-0 · .+ compared with sums openai/model-1 · ")
    expect(page.get_by_role("region", name="Compare")).to_contain_text(said)


def test_the_list_is_filtered_by_status_model_dataset_and_rollout(pages: Pages, tmp_path: Path) -> None:
    other = {"status": "failed", "model": "openai/m", "dataset": "data/other.jsonl", "rollout": "other"}
    rows = [row(f"run-{name}", **{"rollout": "mine", name: value}) for name, value in other.items()]
    page = pages.open(report(tmp_path / "report.html", rows))

    for name, value in other.items():
        expect(page.locator("a.run-link")).to_have_count(4)
        page.get_by_label(name, exact=True).select_option(value)
        expect(page.locator("a.run-link")).to_have_text([f"run-{name}"])
        page.get_by_label(name, exact=True).select_option("")


def test_each_bar_of_a_chart_leads_to_the_runs_that_it_counts(pages: Pages, tmp_path: Path) -> None:
    n = 200
    made = run_page("wide", [at % 3 for at in range(n)])
    chance = random.Random(1)
    values = [chance.gauss(0, 1) if at % 7 else None for at in range(n)]
    made = {**made, "runs": {**made["runs"], "metrics": {"rollout: depth": values}}}
    address = report(tmp_path / "report.html", [made["head"]["row"]], {"wide": made})
    page = pages.open(f"{address}#/run/wide?tab=statistics")
    figure = page.locator("figure", has_text="rollout: depth").first
    figure.get_by_text("Numbers", exact=True).click()

    bars = figure.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [row.querySelector('a').getAttribute('href'),"
        " ...[...row.querySelectorAll('td')].map(cell => Number(cell.innerText))])"
    )

    assert sum(sum(counts) for _, *counts in bars) == sum(value is not None for value in values)
    for hash_, *counts in [bars[0], bars[len(bars) // 2], bars[-1]]:
        page.goto(f"{address}{hash_}")
        expect(page.locator(".toolbar-counts")).to_contain_text(f"{sum(counts)} of {n} runs")


def test_a_point_leads_to_its_run_and_a_box_to_the_runs_in_it(pages: Pages, tmp_path: Path) -> None:
    made = run_page("wide", [0, 1, 2, 0])
    columns = {**made["runs"], "duration_ms": [1000.0, 2000.0, 3000.0, 4000.0], "tokens": [40, 10, 30, 20]}
    address = report(tmp_path / "report.html", [made["head"]["row"]], {"wide": {**made, "runs": columns}})  # type: ignore[typeddict-item]
    page = pages.open(f"{address}#/run/wide?tab=statistics")
    chart = drawn(page)
    failed = page.locator(".points-failed").get_attribute("d") or ""
    x, y = map(int, re.findall(r"[0-9]+", failed)[:2])
    frame = chart.bounding_box()
    assert frame is not None

    page.mouse.move(frame["x"] + 60, frame["y"] + y - 20)  # around 10 tokens, and no others
    page.mouse.down()
    page.mouse.move(frame["x"] + frame["width"] - 1, frame["y"] + y + 20, steps=3)
    page.mouse.up()

    expect(page.locator(".toolbar-counts")).to_have_text("1 of 4 runs in 1 row: 1 failed")
    page.go_back()
    chart = drawn(page)
    frame = chart.bounding_box()
    assert frame is not None
    page.mouse.click(frame["x"] + x + 3, frame["y"] + y - 3)
    page.wait_for_url(re.compile("#/run/wide/row1-run0"))


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_theme_is_that_of_the_system_until_the_reader_chooses(pages: Pages, tmp_path: Path, theme: Theme) -> None:
    page = pages.open(report(tmp_path / "report.html", [row("run0"), row("run1")]), theme=theme)
    colour = "getComputedStyle(document.body).backgroundColor"
    other = "light" if theme == "dark" else "dark"
    before = page.evaluate(colour)

    page.get_by_role("button", name=f"Use {other} colours").click()

    assert page.evaluate(colour) != before
    page.reload()
    expect(page.get_by_role("button", name=f"Use {theme} colours")).to_be_visible()
    page.get_by_role("button", name=f"Use {theme} colours").click()
    assert page.evaluate(colour) == before


def test_the_list_works_by_keyboard(pages: Pages, tmp_path: Path) -> None:
    page = pages.open(report(tmp_path / "report.html", [row("run0"), row("run1"), row("run2")]))
    page.locator("a.run-link").first.wait_for()

    page.keyboard.press("?")

    help_ = page.get_by_role("dialog", name="Keys")
    for does in ("next eval run", "tick to compare", "compare the two that are ticked", "list the keys"):
        expect(help_.get_by_text(does, exact=True)).to_be_visible()
    page.keyboard.press("Escape")
    expect(help_).to_be_hidden()

    for key in ("j", "x", "j", "j", "x", "c"):
        page.keyboard.press(key)
    page.wait_for_url(re.compile("#/compare/run2/run0"))
    page.keyboard.press("Escape")
    page.locator("a.run-link").first.wait_for()
    keys_at_once = """(keys) => keys.map((key) => {
      document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true}));
      return location.hash.split("?")[0];
    })"""  # before any view is laid out in between
    for key in ("j", "x", "j", "x"):
        page.keyboard.press(key)
    assert page.evaluate(keys_at_once, ["c", "Escape"]) == ["#/compare/run1/run0", "#/"]

    page.keyboard.press("/")
    page.keyboard.type("run1jx?")
    expect(page.get_by_label("filter by name")).to_have_value("run1jx?")
    expect(page.get_by_text("No eval run matches")).to_be_visible()
    expect(help_).to_be_hidden()


def test_the_list_is_where_the_reader_left_it(pages: Pages, tmp_path: Path) -> None:
    made = {f"run{at}": run_page(f"run{at}", [0, 1]) for at in range(60)}
    page = pages.open(report(tmp_path / "report.html", [each["head"]["row"] for each in made.values()], made))

    page.get_by_role("link", name="run50").click()
    page.get_by_role("heading", name="sums m").wait_for()
    assert page.evaluate("scrollY") == 0
    page.keyboard.press("Escape")

    expect(page.get_by_role("link", name="run50")).to_be_focused()
    expect(page.get_by_role("link", name="run50")).to_be_in_viewport()
    page.keyboard.press("j")
    expect(page.get_by_role("link", name="run51")).to_be_focused()


def test_the_printed_address_opens_a_view_and_no_address_or_request_line_keeps_the_token(
    pages: Pages, tmp_path: Path
) -> None:
    write_run(tmp_path, "sums-20261122T000000Z-aaaaaa")
    with dashboard(tmp_path) as served:
        address = f"http://127.0.0.1:{served.port}/"
        page = pages.page(server=served.server)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}#token={served.token}&/?text=sums&sort=-cost")

        expect(page.locator("a.run-link")).to_contain_text(["sums-20261122T000000Z-aaaaaa"])
        assert page.url == f"{address}#/?text=sums&sort=-cost"
        assert [url for url in asked if served.token in url.partition("#")[0]] == []
        page.reload()
        expect(page.get_by_label("filter by name")).to_have_value("sums")
        expect(page.locator("a.run-link")).to_have_count(1)

        write_run(tmp_path, "sums-20261122T000000Z-bbbbbb")
        expect(page.locator("a.run-link")).to_have_count(2)

        served.interrupt()
    expect(page.get_by_role("alert")).to_contain_text("The dashboard does not answer. Is pytest-osmosis view still")
    expect(page.locator("a.run-link")).to_have_count(2)
    page.close()  # it goes on asking
    assert all("ERR_CONNECTION_REFUSED" in error for error in pages.faults.errors), pages.faults
    pages.faults.errors.clear()
