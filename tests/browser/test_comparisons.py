"""Two eval runs compared, and the history of an eval, in a report in a real browser."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from playwright.sync_api import Locator, Page, expect

from benchmarks.viewer_runs import BEGAN, SyntheticRun, write_run
from pytest_osmosis.addons.viewer.comparing import ComparedRun, comparison_page, history_page, past_run_of
from pytest_osmosis.addons.viewer.open_run import OpenRun
from pytest_osmosis.addons.viewer.report import ReportedRun, write_report
from pytest_osmosis.addons.viewer.report import report as written_report
from pytest_osmosis.addons.viewer.run_entry import RunEntry
from pytest_osmosis.addons.viewer.shapes import ComparedRow, ComparisonPage, HistoryPage
from pytest_osmosis.record.run_directory import RunDirectory
from pytest_osmosis.text.numbers import difference
from pytest_osmosis.text.redaction import Redaction
from tests.browser.pages import Pages
from tests.unit.viewer.made_pages import list_of, run_page

ROWS, N = 24, 2
SHARES: Mapping[str, float] = {"good": 0.95, "bad": 0.2, "again": 0.95, "alike": 0.9}


class Made(NamedTuple):
    """A report, and the pages that Python made of its eval runs."""

    path: Path
    good_bad: ComparisonPage
    good_again: ComparisonPage
    history: HistoryPage

    def address(self, place: str) -> str:
        return f"{self.path.as_uri()}#{place}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("compared")
    runs = {}
    for day, (name, share) in enumerate(SHARES.items()):
        run = SyntheticRun(name=name, rows=ROWS, n=N, seed=day, share=share, began=BEGAN + timedelta(days=day))
        runs[name] = OpenRun(RunDirectory(write_run(folder, run).path))
        runs[name].read()
    path = folder / "report.html"
    written_report(path, {run.directory: "all" for run in runs.values()}, Redaction())
    heads: dict[str, RunEntry] = {name: run.page()["head"]["row"] for name, run in runs.items()}
    sides = {name: ComparedRun(heads[name], run.stored, run.prompts) for name, run in runs.items()}
    past = [past_run_of(heads[name], run.stored, partial(getattr, run, "prompts")) for name, run in runs.items()]
    return Made(
        path,
        comparison_page(sides["good"], sides["bad"]),
        comparison_page(sides["good"], sides["again"]),
        history_page("support", past),
    )


def names_of(page: Page) -> list[str]:
    return page.locator(".compared-rows tbody th a").all_inner_texts()


def text_of(part: Locator) -> str:
    return str(part.evaluate("each => each.textContent"))


def focused(page: Page) -> str:
    return str(page.evaluate("document.activeElement.textContent"))


def test_the_finding_stands_first_and_chance_is_as_plain_as_a_regression(pages: Pages, made: Made) -> None:
    for name, compared, word in (("bad", made.good_bad, "▼ B is worse"), ("again", made.good_again, "≈ May be chance")):
        page = pages.open(made.address(f"/compare/good/{name}"))
        finding = page.get_by_role("region", name="Finding")
        expect(finding.locator(".finding-word")).to_have_text(word)
        sentence = compared["sentence"].partition(": ")[2]
        expect(finding.locator(".finding-sentence")).to_have_text(sentence[0].upper() + sentence[1:])
        assert [note for note in compared["remarks"] if note not in text_of(finding)] == []
    title = "support: 2026-11-22 14:03:59 UTC compared with 2026-11-20 14:03:59 UTC"
    expect(page.locator("h1")).to_have_text(title)
    assert page.locator(".finding-word").evaluate("each => getComputedStyle(each).fontSize") == "20px"


def test_rows_come_with_the_largest_loss_first_and_are_filtered_by_their_change(pages: Pages, made: Made) -> None:
    page = pages.open(made.address("/compare/good/bad"))
    rows = made.good_bad["rows"]
    changed = [f"row{row['b_row']}" for row in rows if row["change"] in ("worse", "better")]
    expect(page.locator(".compared-rows tbody tr")).to_have_count(len(changed))
    assert names_of(page) == changed
    assert rows[0]["loss"] == max(row["loss"] or 0 for row in rows) > 0

    page.get_by_role("button", name="all").click()
    expect(page.locator(".compared-rows tbody tr")).to_have_count(ROWS)
    page.get_by_label("Order").select_option("row")
    assert names_of(page) == [f"row{row}" for row in range(ROWS)]
    page.get_by_role("searchbox").fill("row7")
    expect(page.locator(".compared-rows tbody tr")).to_have_count(1)
    again = pages.open(page.url)
    expect(again.locator(".compared-rows tbody tr")).to_have_count(1)
    assert names_of(again) == ["row7"]


def test_rows_are_opened_side_by_side_by_keys_and_the_address_opens_the_same(pages: Pages, made: Made) -> None:
    page = pages.open(made.address("/compare/good/bad"))
    listed = [row for row in made.good_bad["rows"] if row["change"] in ("worse", "better")]
    expect(page.locator(".compared-rows .compared-text mark").first).to_be_visible()  # in what both answers differ
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert focused(page) == f"row{listed[0]['b_row']}"
    page.keyboard.press("Enter")

    pair = page.get_by_role("complementary")
    expect(pair.locator("h1")).to_have_text(f"row{listed[0]['b_row']}")
    sides = pair.get_by_role("article")
    expect(sides.nth(0).locator(".pair-run[aria-pressed=true] .outcome")).to_have_text("✓ passed")
    expect(sides.nth(1).locator(".pair-run[aria-pressed=true] .outcome")).to_have_text("✗ failed")
    expect(pair.locator(".pair-whole")).to_have_count(2)

    page.keyboard.press("j")
    expect(pair.locator("h1")).to_have_text(f"row{listed[1]['b_row']}")
    page.keyboard.press("Shift+L")
    page.keyboard.press("l")
    chosen = pair.locator(".pair-run[aria-pressed=true]")
    expect(chosen).to_have_count(2)
    picked = chosen.all_inner_texts()
    expect(pair.locator(".pair-whole")).to_have_count(2)
    again = pages.open(page.url, width=400, theme="dark")
    expect(again.locator(".pair-whole")).to_have_count(2)
    assert again.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert again.locator(".pair-run[aria-pressed=true]").all_inner_texts() == picked
    expect(again.get_by_role("complementary").locator("h1")).to_have_text(f"row{listed[1]['b_row']}")

    page.keyboard.press("Escape")
    expect(pair).to_have_count(0)
    expect(page.locator(".compared-rows")).to_be_visible()
    assert focused(page) == f"row{listed[1]['b_row']}", "the focus goes back to the row"


def test_a_history_leads_from_each_eval_run_to_its_page_and_its_comparison(pages: Pages, made: Made) -> None:
    page = pages.open(made.address("/history/support"))
    points = made.history["models"][0]["points"]
    assert [point["change"]["before"] if point["change"] else None for point in points] == [None, *[*SHARES][:-1]]

    assert page.locator(".trend svg").evaluate("chart => getComputedStyle(chart).maxWidth") == "100%", "also on paper"
    links = page.locator(".trend-point")
    expect(links).to_have_count(len(points))
    assert [each.get_attribute("href") for each in links.all()] == [f"#/run/{name}" for name in SHARES]
    change = points[1]["change"]
    assert change is not None
    text = f"{difference(change['difference'])} over {ROWS} rows"
    expect(page.locator("a.history-change").nth(2)).to_have_text(text)
    assert str(links.nth(1).get_attribute("aria-label")).endswith(f"; {text}")
    assert page.locator("a.history-change").nth(2).get_attribute("href") == "#/compare/good/bad"

    flips = page.locator(".flip-rows tbody tr")
    expect(flips).to_have_count(len(made.history["models"][0]["rows"]))
    first = made.history["models"][0]["rows"][0]
    expect(flips.first.locator("th")).to_have_text(f"row{first['row_index']}")
    cells = [each.get_attribute("title") for each in flips.first.locator(".flip-cell").all()]
    assert cells == [
        f"{name}: {passed} of {measured} passed" if measured else f"{name}: not measured"
        for name, passed, measured in zip(SHARES, first["passed"], first["measured"], strict=True)
    ]
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    expect(page).to_have_url(made.address(f"/run/good/row{first['row_indices'][0]}-run0"))


# -- words -------------------------------------------------------------------------------------------------

ANSWERS: Sequence[tuple[str, str, Sequence[str], Sequence[str]]] = (
    ("the quick brown fox jumps", "the slow brown cat jumps high", ["quick", "fox"], ["slow", "cat", " high"]),
    ("答案是四十二。", "答案是四十三。", ["二"], ["三"]),
    ("alpha beta", "gamma delta", ["alpha beta"], ["gamma delta"]),
    ("x = 1\n    y = 2\n", "x = 1\n  y = 2\n", ["\n    "], ["\n  "]),
    ("<b>a</b> \u202eb", "<i>a</i> \u202eb", ["b", "b"], ["i", "i"]),
)
MANY = "\n".join(f"line {number} of many" for number in range(30_000))


def talk(answer: str, score: float) -> dict[str, Any]:
    messages = [{"role": "user", "content": "Say it."}, {"role": "assistant", "content": answer}]
    rollout = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "messages": messages, "n_prompt": 1}
    return {"rollout": rollout, "scores": [{"ev": "score", "scores": {"reward": score}, "ms": 1.0}]}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A report on two eval runs, a and b: rows with `ANSWERS`, one answer twice, a long one that changed, and none."""
    pairs = [(a, b) for a, b, _, _ in ANSWERS]
    pairs += [("alike", "alike"), (MANY, MANY.replace("line 15000 of", "line fifteen of")), ("said", "")]
    both = run_page("a", [0] * len(pairs)), run_page("b", [1] * len(pairs))
    rows = [
        ComparedRow(
            digest=f"{row:016x}", prompt="Say it.", a_row=row, b_row=row, a_passed=1, a_measured=1, b_passed=0,
            b_measured=1, change="worse", loss=1.0,
        )
        for row in range(len(pairs))
    ]  # fmt: skip
    page = ComparisonPage(
        a=both[0]["head"]["row"], b=both[1]["head"]["row"], problem="made by hand", meaning=None,
        sentence="", caveats=[], remarks=[], differs=[], config_diff=["+n = 2"], numbers=None, rows=rows,
        only_a=[], only_b=[1],
    )  # fmt: skip
    lines = [[json.dumps(talk(pair[side], 1.0 - side)).encode() for pair in pairs] for side in (0, 1)]
    reported = [ReportedRun(each, made.__getitem__) for each, made in zip(both, lines, strict=True)]
    path = tmp_path_factory.mktemp("words") / "report.html"
    write_report(path, list_of(*both), reported, {"a b": page}, {}, Redaction())
    return path


def test_the_words_in_which_two_answers_differ_are_marked_in_both(pages: Pages, words: Path) -> None:
    page = pages.open(f"{words.as_uri()}#/compare/a/b/{0:016x}")
    for row, (a, b, only_a, only_b) in enumerate(ANSWERS):
        page.goto(f"{words.as_uri()}#/compare/a/b/{row:016x}")
        expect(page.get_by_role("complementary").locator("h1")).to_have_text(f"row{row}")
        texts = page.locator(".pair-text")
        expect(texts).to_have_count(2)
        shown = [text.strip().replace("\u202e", r"\u202e") for text in (a, b)]
        expect(texts).to_have_text(shown, use_inner_text=False)
        assert [[text_of(mark) for mark in text.locator("mark").all()] for text in texts.all()] == [only_a, only_b]


def test_equal_answers_are_said_to_be_equal_and_long_ones_differ_by_lines(pages: Pages, words: Path) -> None:
    page = pages.open(f"{words.as_uri()}#/compare/a/b/{len(ANSWERS):016x}")
    expect(page.get_by_text("Both gave the same answer.")).to_be_visible()
    assert page.locator(".pair-text mark").count() == 0

    page.goto(f"{words.as_uri()}#/compare/a/b/{len(ANSWERS) + 1:016x}")
    expect(page.locator(".pair-text mark")).to_have_text(["15000", "fifteen"])


def test_a_list_of_rows_says_where_there_is_no_answer_and_has_no_empty_table(pages: Pages, words: Path) -> None:
    page = pages.open(f"{words.as_uri()}#/compare/a/b")

    last = page.locator(".compared-rows tbody tr").last
    expect(last.locator(".compared-text")).to_have_text(["Say it.", "said", "no answer"])
    expect(page.get_by_text("Lines of the TOML")).to_be_visible()
    expect(page.locator("table.differs")).to_have_count(0)
