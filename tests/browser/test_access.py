"""A dashboard gives its data to its own page only, as a real browser sees it."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from benchmarks.viewer_runs import SyntheticRun, write_run
from tests.browser.pages import Pages
from tests.browser.viewed import NOW, Viewed
from tests.cli.dashboards import NotingBrowser, RunningDashboard
from tests.cli.dashboards import dashboard as dashboard_of


def test_another_page_cannot_read_or_frame_it(
    pages: Pages, dashboard: RunningDashboard, viewed: Viewed, tmp_path: Path
) -> None:
    """This page knows the address and even the token, as an extension might; its origin is another one."""
    page = pages.open("about:blank", server=dashboard.server)
    other = tmp_path / "other.html"
    other.write_text(f'<iframe src="http://{dashboard.server}/"></iframe>')
    page.goto(other.as_uri())

    read = page.evaluate(
        """async ([address, token]) => {
          const asked = [];
          for (const options of [{}, {mode: "no-cors"}, {headers: {Authorization: `Bearer ${token}`}}])
            asked.push(await fetch(address, options).then((answer) => answer.text(), () => "refused"));
          return asked;
        }""",
        [f"http://{dashboard.server}/api/runs", dashboard.token],
    )

    assert NOW not in "".join(read)
    assert read[2] == "refused"
    expect(page.frame_locator("iframe").locator("main")).to_have_count(0)
    pages.faults.errors.clear()
    pages.faults.refused.clear()


def test_the_address_that_the_dashboard_opens_is_good_for_one_page(pages: Pages, tmp_path: Path) -> None:
    write_run(tmp_path, SyntheticRun("opened", rows=2, n=1))
    browser = NotingBrowser(tmp_path)
    with dashboard_of(tmp_path, "opened", BROWSER=str(browser.path)) as running:
        server = f"127.0.0.1:{running.port}"
        assert running.view == "&/run/opened"
        assert running.token not in browser.address()
        page = pages.open(browser.address(), server=server)
        expect(page.get_by_role("grid")).to_be_visible()
        assert page.url == f"http://{server}/#/run/opened"
        page.reload()
        expect(page.get_by_role("grid")).to_be_visible()

        other = pages.open(browser.address(), server=server)
        expect(other.get_by_role("alert")).to_contain_text("the token is missing")
        page.close()
        other.close()
    pages.faults.errors.clear()  # the browser notes each 401
