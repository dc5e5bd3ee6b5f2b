"""A dashboard follows an eval run: while it grows, with a line that is not whole, until it ends."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from benchmarks.viewer_runs import RunInProgress, SyntheticRun
from pytest_osmosis.record.journal import encode
from tests.browser.pages import Pages, settled
from tests.cli.dashboards import dashboard as dashboard_of
from tests.plugin.workspaces import Shell, Workspace

NAME = "support-growing"
SET_HIDDEN = """(is_hidden) => {
    Object.defineProperty(document, "hidden", { value: is_hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Does what a browser does as its tab goes to the background, and comes back."""


@contextmanager
def in_progress(root: Path, rows: int = 8) -> Iterator[RunInProgress]:
    run = RunInProgress(root, SyntheticRun(NAME, rows=rows, n=2))
    try:
        yield run
    finally:
        run.journal.close()


@contextmanager
def viewing(pages: Pages, root: Path, view: str = "", *, stops_clock: bool = False) -> Iterator[Page]:
    """Yield a view of a dashboard. It is closed before the dashboard, for which it would ask."""
    with dashboard_of(root, "--no-open") as dashboard:
        page = pages.page(server=dashboard.server)
        if stops_clock:
            page.clock.install()
        page.goto(dashboard.address(view))
        settled(page)
        yield page
        page.close()


def expect_ended(page: Page, number: int) -> None:
    outcomes = page.get_by_role("grid").locator(
        ", ".join(f"[aria-label*=': {outcome}']" for outcome in ("passed", "failed", "unmeasured"))
    )
    expect(outcomes).to_have_count(number)


def n_ended(root: Path) -> int:
    """Return how many runs have ended by the journal."""
    lines = (root / ".osmosis" / "runs" / NAME / "journal.jsonl").read_bytes().split(b"\n")[:-1]
    events = [json.loads(line) for line in lines]
    broke = {(each["row"], each["run"]) for each in events if each["ev"] == "rollout" and "error" in each}
    scored = [(each["row"], each["run"]) for each in events if each["ev"] == "score"]
    return len(broke) + len({each for each in scored if scored.count(each) == 2})


def test_an_eval_run_is_followed_to_its_end(pages: Pages, tmp_path: Path) -> None:
    with in_progress(tmp_path) as run, viewing(pages, tmp_path, f"run/{NAME}") as page:
        expect(page.locator("header")).to_contain_text("live")
        expect_ended(page, 0)

        run.append(30)
        expect_ended(page, n_ended(tmp_path))

        line = encode(next(run.events))
        run.journal.append(line[: len(line) // 2])
        before = n_ended(tmp_path)
        run.journal.append(line[len(line) // 2 :])
        expect_ended(page, before)
        run.append(8)
        expect_ended(page, n_ended(tmp_path))

        run.append()
        run.finish()
        expect_ended(page, 16)
        expect(page.locator("main")).to_contain_text("finished")
        summary = json.loads((tmp_path / ".osmosis" / "runs" / NAME / "results.json").read_text())["summary"]
        expect(page.locator("main")).to_contain_text(f"{summary['pass_rate']:.3f}")


def test_selection_and_scroll_stay_while_an_eval_run_grows(pages: Pages, tmp_path: Path) -> None:
    with in_progress(tmp_path, rows=60) as run:
        run.append(60)
        with viewing(pages, tmp_path, f"run/{NAME}") as page:
            grid = page.get_by_role("grid")
            grid.evaluate("(element) => { element.scrollTop = 200 }")
            page.locator("[aria-label^='row9-run0']").focus()

            run.append(200)

            expect(page.locator("[aria-label^='row9-run0']")).to_be_focused()
            expect(grid.locator("[aria-label*=': pending']")).to_have_count(0)
            assert grid.evaluate("(element) => element.scrollTop") == 200


@pytest.mark.parametrize("view", ["", f"run/{NAME}", f"compare/{NAME}/{NAME}", "history/support"])
def test_a_page_that_is_not_visible_does_not_poll(pages: Pages, tmp_path: Path, view: str) -> None:
    with in_progress(tmp_path), viewing(pages, tmp_path, view, stops_clock=True) as page:
        with page.expect_response("**/api/**"):  # it polls
            page.clock.fast_forward(11_000)
        page.evaluate(SET_HIDDEN, True)
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
        page.clock.run_for(60_000)
        page.evaluate("fetch('app.css')")  # which is asked for after all that was asked before
        assert asked == ["app.css"]

        with page.expect_response("**/api/**"):
            page.evaluate(SET_HIDDEN, False)


def test_scores_that_are_made_again_replace_those_on_screen(pages: Pages, tmp_path: Path) -> None:
    workspace = Workspace(Shell(tmp_path), [])
    workspace.eval("x", [{"score": 0.25}, {"score": 1.0}])
    config = "--osmosis-config=configs/eval/x.toml"
    # Processes, because the event loop of the browser is in this one.
    assert workspace.run_process(config).ret == 1
    name = workspace.run_dirs()[-1].name
    with viewing(pages, tmp_path, f"run/{name}") as page:
        expect(page.locator("[aria-label='row0-run0: failed, 0.250']")).to_be_visible()

        workspace.write("rewards.py", "def score(solution_str, ground_truth, **kwargs):\n    return 0.75\n")
        workspace.run_process(config, f"--osmosis-from={name}")
        page.reload()

        expect(page.locator("[aria-label='row0-run0: failed, 0.750']")).to_be_visible()
        expect(page.locator("[aria-label='row1-run0: failed, 0.750']")).to_be_visible()
