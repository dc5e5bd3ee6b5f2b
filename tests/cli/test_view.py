"""`pytest-osmosis view`: its address, its port, the browser, and what a refused request is told."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.record.journal import encode
from tests.cli.dashboards import NotingBrowser, RunningDashboard, dashboard
from tests.cli.stored_runs import LOADED, RESULTS, Cli
from tests.unit.made import MANIFEST

NAME = "sums-20261122T140157Z-1ef7a3"


def store(folder: Path, name: str = NAME) -> Path:
    """Write an eval run that has ended."""
    run = folder / ".osmosis/runs" / name
    run.mkdir(parents=True)
    (run / "manifest.json").write_text(json.dumps(MANIFEST))
    (run / "journal.jsonl").write_bytes(encode(LOADED))
    (run / "results.json").write_text(json.dumps(RESULTS))
    return run


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDashboard]:
    folder = tmp_path_factory.mktemp("workspace") / "evals"
    store(folder)
    with dashboard(folder, "--no-open", "--allow-host=Box.example.com") as found:
        yield found


def test_the_dashboard_lists_the_eval_runs(running: RunningDashboard) -> None:
    page = running.api("runs").json
    assert (page["workspace"], [run["name"] for run in page["runs"]]) == ("evals", [NAME])
    assert page["runs"][0]["pass_rate"] == 0.5
    assert page["runs"][0]["pass_rate_interval"] == RESULTS["summary"]["pass_rate_interval"]
    assert running.view == ""
    found = running.api(f"runs/{NAME}/search/1?text=%22").json
    assert (found["is_whole"], running.api(f"runs/{NAME}/search/x?text=a").status) == (True, 404)


def test_the_page_loads_only_its_bundle(running: RunningDashboard) -> None:
    page = running.get("/")
    assert page.status == 200
    policy = dict(rule.strip().split(" ", 1) for rule in page.headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert (policy["script-src"], policy["connect-src"], policy["frame-ancestors"]) == ("'self'", "'self'", "'none'")
    assert (policy["require-trusted-types-for"], policy["trusted-types"]) == ("'script'", "'none'")
    assert running.get("/app.js", Accept_Encoding="gzip").headers["Content-Encoding"] == "gzip"
    assert running.get("/app.css").headers["Content-Type"].startswith("text/css")
    for path in ("/", "/app.js", "/api/runs", "/api/nothing"):
        headers = running.get(path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"


def test_a_page_that_a_browser_has_is_not_sent_again(running: RunningDashboard) -> None:
    paths = ("runs", f"runs/{NAME}", f"comparisons/{NAME}/{NAME}", "histories/sums")
    tags = {path: running.api(path).headers["Etag"] for path in paths}
    for path, tag in tags.items():
        same = running.api(path, If_None_Match=tag)
        assert (same.status, same.body, same.headers["Etag"]) == (304, b"", tag), path
        assert same.headers["Cache-Control"] == "no-store"
        for other in ("", "nonsense", *({*tags.values()} - {tag})):
            assert running.api(path, If_None_Match=other).status == 200, (path, other)


def test_a_request_that_is_refused_says_what_to_do(running: RunningDashboard) -> None:
    refused = running.api("runs", Host="evil.example")
    assert (refused.status, "--allow-host" in refused.text) == (421, True)
    assert running.api("runs", Host="box.example.com").status == 200
    refused = running.api("runs", Authorization="")
    assert (refused.status, "open the address" in refused.text) == (401, True)
    for method in ("POST", "OPTIONS"):
        assert "Access-Control-Allow-Origin" not in running.get("/api/runs", method).headers


def test_a_port_in_use_and_an_address_of_another_machine_are_reported(typed: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert typed("view", "--no-open", f"--port={port}", fails=1) == (
            f"--port={port}: the port is in use, perhaps by another dashboard; name another port, or leave the option "
            "out, which takes a free one\n"
        )
    said = typed("view", "--no-open", "--host=192.0.2.1", fails=1)
    assert said.startswith("--host=192.0.2.1: cannot listen at port ")


def test_it_has_a_free_port_if_the_usual_one_is_in_use_waits_for_the_first_run_and_ends_with_ctrl_c(
    tmp_path: Path,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # another program may have the real one, and let go of it
        port = taken.getsockname()[1]
        with dashboard(tmp_path, "--no-open", usual_port=port) as running:
            assert running.port != port
            assert f"port {port} is in use" in running.said
            assert "no runs in .osmosis/runs yet" in running.said
            assert running.api("runs").json["runs"] == []
            store(tmp_path)
            assert [run["name"] for run in running.api("runs").json["runs"]] == [NAME]
            assert running.interrupt() == (0, "")


def test_a_named_run_is_opened_in_the_browser_with_a_key_for_one_request(tmp_path: Path) -> None:
    store(tmp_path)
    browser = NotingBrowser(tmp_path)
    with dashboard(tmp_path, "sums", BROWSER=str(browser.path)) as running:
        assert running.view == f"&/run/{NAME}"
        address = browser.address()
        begin, _, rest = address.partition("#once=")
        key, _, view = rest.partition("&")
        assert (begin, view) == (f"http://127.0.0.1:{running.port}/", f"/run/{NAME}")
        assert running.token not in address
        assert running.api("runs", Authorization=f"Bearer {key}").status == 401
        assert running.api("token").status == 401
        assert running.api("token", Authorization=f"Bearer {key}").json == {"token": running.token}
        assert running.api("token", Authorization=f"Bearer {key}").status == 401


def test_over_ssh_the_command_of_a_tunnel_is_printed_and_a_folder_with_runs_is_shown(tmp_path: Path) -> None:
    store(tmp_path / "artifact")
    folder, connection = "artifact/.osmosis/runs", "198.51.100.7 50000 203.0.113.5 2222"
    with dashboard(tmp_path, folder, SSH_CONNECTION=connection, LOGNAME="ada", DISPLAY=":10") as running:
        assert f"ssh -N -L {running.port}:127.0.0.1:{running.port} HOST" in running.said
        page = running.api("runs").json
        assert (page["workspace"], [run["name"] for run in page["runs"]]) == ("artifact", [NAME])
