"""A dashboard gives its data to its own page only: other names, origins, addresses and methods get none."""

from __future__ import annotations

import http.client
import json
from pathlib import Path

import pytest
from playwright.sync_api import expect

from benchmarks.viewer_runs import SyntheticRun, write_run
from tests.browser.dashboards import Dashboard
from tests.browser.pages import Pages
from tests.browser.viewed import NOW, Viewed
from tests.cli.dashboards import NotingBrowser
from tests.cli.dashboards import dashboard as dashboard_of

API = "/api/runs"


def answer(dashboard: Dashboard, target: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Return the status and the body of an answer. `headers` replace those of the dashboard's own page."""
    connection = http.client.HTTPConnection("127.0.0.1", dashboard.port, timeout=30)
    given = {"Host": dashboard.server, "Authorization": f"Bearer {dashboard.token}"}
    given |= {name.replace("_", "-"): value for name, value in headers.items()}
    connection.putrequest(method, target, skip_host=True, skip_accept_encoding=True)
    for name, value in given.items():
        connection.putheader(name, value)
    connection.endheaders()
    try:
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


def test_its_own_page_gets_data(dashboard: Dashboard) -> None:
    status, body = answer(dashboard, API, Sec_Fetch_Site="same-origin")

    assert status == 200
    assert NOW in [run["name"] for run in json.loads(body)["runs"]]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": "evil.example:127.0.0.1"}, 421),
        ({"Host": ""}, 421),
        ({"Authorization": ""}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"Authorization": "Bearer undefined"}, 401),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_others_get_none(dashboard: Dashboard, headers: dict[str, str], status: int) -> None:
    got, body = answer(dashboard, API, **headers)

    assert got == status
    assert NOW.encode() not in body


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
def test_nothing_but_get_is_answered(dashboard: Dashboard, method: str) -> None:
    assert answer(dashboard, API, method)[0] == 405


@pytest.mark.parametrize(
    "target",
    [
        *("/../../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/app.js/../../../shapes.py", "//etc/passwd"),
        *("/api/runs/..", "/api/runs/../../data/support.jsonl", "/api/runs/..%2f..%2fdata%2fsupport.jsonl"),
        *("/api/runs/%2fetc%2fpasswd", "/api/runs/%00", "/api/runs/.", "/api/runs/support-now%2f..%2fsupport-then"),
        *("/api/runs/support-now/conversations/-1", "/api/runs/support-now/conversations/999999"),
        *("/api/runs/support-now/conversations/1e3", "/api/comparisons/../..", "/api/histories/..%2f.."),
        *("/.osmosis/runs/support-now/journal.jsonl", "/assets/../shapes.py", "/api/runs/journal.jsonl"),
    ],
)
def test_names_are_looked_up_and_no_path_leads_to_a_file(dashboard: Dashboard, target: str) -> None:
    status, body = answer(dashboard, target)

    assert status in (400, 404)
    assert b"root:" not in body
    assert b"user_prompt" not in body
    assert b"Traceback" not in body


def test_another_page_cannot_read_or_frame_it(
    pages: Pages, dashboard: Dashboard, viewed: Viewed, tmp_path: Path
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
        [f"http://{dashboard.server}{API}", dashboard.token],
    )

    assert NOW not in "".join(read)
    assert read[2] == "refused"
    expect(page.frame_locator("iframe").locator("main")).to_have_count(0)
    pages.faults.errors.clear()
    pages.faults.refused.clear()


def test_the_token_leaves_the_address_and_no_request_line_has_it(pages: Pages, dashboard: Dashboard) -> None:
    page = pages.page(server=dashboard.server)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto(dashboard.address())

    expect(page.get_by_role("link", name=NOW, exact=True)).to_be_visible()
    assert dashboard.token not in page.url
    assert [url for url in asked if dashboard.token in url.partition("#")[0]] == []
    page.reload()
    expect(page.get_by_role("link", name=NOW, exact=True)).to_be_visible()


def test_without_the_token_the_page_says_how_to_get_it(pages: Pages, dashboard: Dashboard) -> None:
    page = pages.open(f"http://{dashboard.server}/", server=dashboard.server)

    expect(page.get_by_role("alert")).to_contain_text("pytest-osmosis view")
    page.close()  # it asks again each second
    pages.faults.errors.clear()  # the browser notes each 401


def test_the_address_that_the_dashboard_opens_is_good_for_one_page(pages: Pages, tmp_path: Path) -> None:
    write_run(tmp_path, SyntheticRun("opened", rows=2, n=1))
    browser = NotingBrowser(tmp_path)
    with dashboard_of(tmp_path, "opened", BROWSER=str(browser.path)) as running:
        server = f"127.0.0.1:{running.port}"
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
