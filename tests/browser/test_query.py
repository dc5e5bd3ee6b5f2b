"""The query language in a report: each query shows the runs that Python counts too."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.viewer_runs import SyntheticRun
from tests.browser.pages import Pages
from tests.browser.run_report import Run, RunReport, ask, counts, field, seen_texts, write_run_report

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run_report(tmp_path_factory: pytest.TempPathFactory) -> RunReport:
    run = SyntheticRun(rows=40, n=3, baseline="openai/gpt-5-nano")
    return write_run_report(tmp_path_factory.mktemp("query"), run)


@pytest.fixture
def page(pages: Pages, run_report: RunReport) -> Page:
    return pages.open(run_report.address())


def below(value: float | None, bound: float) -> bool:
    return value is not None and value < bound


def above(value: float | None, bound: float) -> bool:
    return value is not None and value > bound


def is_seen(text: str, run: Run) -> bool:
    return any(text.lower() in seen.lower() for seen in seen_texts(run.conversation))


QUERIES: dict[str, Callable[[Run], bool]] = {
    "status:failed": lambda run: run.outcome == "failed",
    "status:failed,unmeasured": lambda run: run.outcome in ("failed", "unmeasured"),
    "-status:passed": lambda run: run.outcome != "passed",
    "status:error": lambda run: run.boundary is not None,
    "boundary:none": lambda run: run.boundary is None,
    "boundary:reward,timeout": lambda run: run.boundary in ("reward", "timeout"),
    "fn:rewards:correct<0.5": lambda run: below(run.scores["rewards:correct"], 0.5),
    "fn:concise>=0.5": lambda run: (run.scores["rewards:concise"] or 0) >= 0.5,
    "correct=1": lambda run: run.scores["rewards:correct"] == 1,
    'metric:"rollout: tool_calls">1': lambda run: above(run.metrics["rollout: tool_calls"], 1),
    "tool_calls>1": lambda run: above(run.metrics["rollout: tool_calls"], 1),
    "row:3,7-9 run:0": lambda run: run.row in (3, 7, 8, 9) and run.index == 0,
    "model:baseline": lambda run: run.model == 1,
    "model:mini status:failed": lambda run: run.model == 0 and run.outcome == "failed",
    "cost>0.002": lambda run: above(run.cost, 0.002),
    "ms>5000 -turns>2": lambda run: above(run.ms, 5000) and not above(run.turns, 2),
    "tokens<1500": lambda run: below(run.tokens, 1500),
    "osaka": lambda run: "osaka" in f"{run.prompt} {run.error}".lower(),
    "请用中文": lambda run: "请用中文" in run.prompt,
    "error:ValueError": lambda run: "ValueError" in run.error,
    "prompt:total": lambda run: "total" in run.prompt.lower(),
}


def test_each_query_shows_the_runs_for_which_it_holds(page: Page, run_report: RunReport) -> None:
    for query, holds in QUERIES.items():
        expected = run_report.where(holds)
        assert 0 < len(expected) < len(run_report.runs), f"{query} says nothing about these runs"

        ask(page, query)

        rows = len({run.row for run in expected})
        plural = "" if rows == 1 else "s"
        expect(counts(page), query).to_contain_text(
            f"{len(expected)} of {len(run_report.runs)} runs in {rows} row{plural}"
        )


def test_a_quoted_text_is_searched_in_all_conversations_where_a_reader_sees_it(
    page: Page, run_report: RunReport
) -> None:
    for text, least in (
        ("refund", 1),
        ("海关", 1),
        ('"query": ', 1),
        ("tool_call_id", 0),
        ("call_", 0),
        ("é", 0),
        ("\\", 0),
    ):
        expected = [run for run in run_report.runs if is_seen(text, run)]
        assert len(expected) >= least
        quoted = text.replace("\\", "\\\\").replace('"', '\\"')

        ask(page, f'"{quoted}"')

        expect(page.locator(".query-search")).to_contain_text(f"of {len(run_report.runs)} that were searched")
        expect(counts(page), text).to_contain_text(f"{len(expected)} of {len(run_report.runs)} runs")


@pytest.mark.parametrize(
    ("query", "place", "message"),
    [
        ("osaka statsu:failed", "statsu", 'did you mean "status"?'),
        ("fn:corect<0.5", "corect", "rewards:correct"),
        ("status:fialed", "fialed", "did you mean failed?"),
        ("cost>much", "much", "is not a number"),
        ("row:one", "one", "neither a number nor a range"),
        ('osaka "two', '"two', "does not end with one"),
    ],
)
def test_a_query_that_means_nothing_says_where_and_shows_all_runs(
    page: Page, run_report: RunReport, query: str, place: str, message: str
) -> None:
    ask(page, query)

    problem = page.get_by_role("alert")
    expect(problem.locator("mark")).to_have_text(place)
    expect(problem).to_contain_text(message)
    expect(problem).to_contain_text("The query is not applied.")
    expect(counts(page)).to_have_text(f"{len(run_report.runs)} runs in 40 rows")
    expect(field(page)).to_have_attribute("aria-invalid", "true")


def test_a_query_is_in_the_address_and_opens_the_same_in_a_fresh_page(
    pages: Pages, page: Page, run_report: RunReport
) -> None:
    page.get_by_role("button", name="failed").click()
    field(page).fill("status:failed row:0-19")
    field(page).press("Enter")
    expected = len(run_report.where(lambda run: run.outcome == "failed" and run.row < 20))
    expect(counts(page)).to_contain_text(f"{expected} of")

    fresh = pages.open(page.url)

    expect(field(fresh)).to_have_value("status:failed row:0-19")
    expect(counts(fresh)).to_contain_text(f"{expected} of")
    expect(fresh.get_by_role("button", name="failed", exact=False).first).to_have_attribute("aria-pressed", "true")


def test_a_report_without_conversations_says_that_there_is_nothing_to_search(pages: Pages, tmp_path: Path) -> None:
    made = write_run_report(tmp_path, SyntheticRun(rows=3, n=1), "none")
    page = pages.open(made.address())

    ask(page, '"refund"')

    expect(page.get_by_role("alert")).to_contain_text("this report holds no conversations")
