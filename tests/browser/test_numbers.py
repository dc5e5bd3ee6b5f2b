"""The numbers on screen are those of results.json."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from playwright.sync_api import expect

from benchmarks.viewer_runs import Event, RunInProgress, SyntheticRun
from pytest_osmosis.text.numbers import score
from tests.browser.pages import Pages, go, settled
from tests.browser.viewed import EVAL, KILLED, NOW, THEN, VIEWS, Viewed, write_report
from tests.cli.dashboards import RunningDashboard


@pytest.mark.parametrize("name", [THEN, NOW])
def test_a_run_shows_its_pass_rate_and_interval(pages: Pages, viewed: Viewed, name: str) -> None:
    summary = viewed.results(name)["summary"]
    page = pages.open(viewed.address(f"run/{name}"))
    settled(page)

    for number in (summary["pass_rate"], *(summary["pass_rate_interval"][key] for key in ("low", "high"))):
        expect(page.locator("main")).to_contain_text(score(number))


def test_statistics_of_functions_are_those_of_results(pages: Pages, viewed: Viewed) -> None:
    results = viewed.results(NOW)
    page = pages.open(viewed.address(VIEWS["statistics"]))
    settled(page)
    shown = page.locator("main").inner_text()

    for statistics in results["summary"]["eval_fns"].values():
        for key in ("mean", "std", "min", "max", "pass_rate"):
            assert score(statistics[key]) in shown, (key, statistics[key])


def test_a_killed_eval_run_has_counts_and_nowhere_a_pass_rate(pages: Pages, dashboard: RunningDashboard) -> None:
    page = pages.open(dashboard.address(f"run/{KILLED}"), server=dashboard.server)
    settled(page)
    expect(page.locator(".verdict-rate")).to_have_text("no pass rate for a part")
    expect(page.locator(".verdict-lines")).to_contain_text(" runs passed")
    go(page, f"run/{KILLED}?tab=statistics")
    expect(page.get_by_role("table", name="Statistics of reward functions")).to_be_visible()
    expect(page.get_by_role("columnheader", name="Pass rate")).to_have_count(0)
    go(page, f"history/{EVAL}")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name=KILLED, exact=True))
    expect(row).to_contain_text("pass rate not known")


HUGE = (1.7e308, -1.7e308, 1e160, -3e150, 1e21, 4e15, 1e15, -1e10, 1234.5, 0.5, 0.0, 5e-324)


class HugeScores(RunInProgress):
    """An eval run whose scores, with the distances between them, fit no float."""

    def _events_of_runs(self) -> Iterator[Event]:
        values = cycle(HUGE)
        for event in super()._events_of_runs():
            scores = {name: next(values) for name in event.get("scores", {})}
            yield {**event, "scores": scores} if scores else event


def test_scores_of_any_size_are_shown_and_drawn(pages: Pages, tmp_path: Path) -> None:
    runs = [HugeScores(tmp_path, SyntheticRun(name, rows=8, seed=seed)) for seed, name in enumerate((THEN, NOW))]
    for run in runs:
        run.append()
        run.finish()
    report = Viewed(tmp_path, write_report(tmp_path, tmp_path / "report.html", [THEN, NOW]))
    page = pages.open(report.address(""))

    for view in VIEWS.values():
        go(page, view)
        assert not re.search(r"NaN|Infinity|[\d,]{30}", page.locator("main").inner_html()), view
    go(page, VIEWS["statistics"])
    expect(page.locator("main")).to_contain_text(score(1.7e308))
