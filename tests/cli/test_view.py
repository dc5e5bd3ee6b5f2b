"""`pytest-osmosis view` and `html`: the dashboard, its address, port and refusals; and reports on stored eval runs."""

from __future__ import annotations

import json
import shutil
import socket
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from tests.cli.dashboards import RunningDashboard, dashboard
from tests.cli.stored_runs import RESULTS, ROLLOUT, SCORE, Cli, RealRuns, Stored, write_run
from tests.plugin.reports import Report

NAME = "sums-20261122T140157Z-1ef7a3"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningDashboard]:
    folder = tmp_path_factory.mktemp("workspace") / "evals"
    write_run(folder, NAME)
    with dashboard(folder, "--no-open", "--allow-host=Box.example.com") as found:
        yield found


def test_the_dashboard_lists_the_eval_runs(running: RunningDashboard) -> None:
    page = running.api("runs").json
    assert (page["workspace"], [run["name"] for run in page["runs"]]) == ("evals", [NAME])
    assert page["runs"][0]["pass_rate"] == 0.5
    assert page["runs"][0]["pass_rate_interval"] == RESULTS["summary"]["pass_rate_interval"]
    assert running.view == ""
    assert (running.api("runs", Host="box.example.com").status, running.api("runs", Host="a.example").status) == (
        200,
        421,
    )
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


def test_a_port_in_use_and_an_address_of_another_machine_are_reported(typed: Cli) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert typed("view", "--no-open", f"--port={port}", fails=1) == (
            f"--port={port}: the port is in use, perhaps by another dashboard; name another port, or leave the option "
            "out, which takes a free one\n"
        )
    said = typed("view", "--no-open", "--host=192.0.2.1", fails=1)
    assert said.startswith("--host=192.0.2.1: cannot listen at port ")


def test_it_takes_a_free_port_waits_for_the_first_run_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:  # another program may have the real one, and let go of it
        port = taken.getsockname()[1]
        with dashboard(tmp_path, "--no-open", usual_port=port) as running:
            assert running.port != port
            assert f"port {port} is in use" in running.said
            assert "no eval runs in .osmosis/runs yet" in running.said
            assert running.api("runs").json["runs"] == []
            write_run(tmp_path, NAME)
            assert [run["name"] for run in running.api("runs").json["runs"]] == [NAME]
            assert running.interrupt() == (0, "")


def test_over_ssh_the_command_of_a_tunnel_is_printed_and_a_folder_with_runs_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path / "artifact", NAME)
    folder, connection = "artifact/.osmosis/runs", "198.51.100.7 50000 203.0.113.5 2222"
    with dashboard(tmp_path, folder, SSH_CONNECTION=connection, LOGNAME="ada", DISPLAY=":10") as running:
        assert f"ssh -N -L {running.port}:127.0.0.1:{running.port} HOST" in running.said
        page = running.api("runs").json
        assert (page["workspace"], [run["name"] for run in page["runs"]]) == ("artifact", [NAME])


def test_a_report_holds_pages_comparisons_and_histories(there: Cli, real_runs: RealRuns, tmp_path: Path) -> None:
    said = there("html", "x~1", "x", "y", "-o", str(tmp_path / "all.html"))

    names = [real_runs.then.name, real_runs.now.name, real_runs.other.name]
    report = Report(tmp_path / "all.html")
    assert said.startswith("report: ")
    assert "/all.html (" in said
    assert report.runs == names[::-1]  # the newest first
    for path in (real_runs.then, real_runs.now, real_runs.other):
        page, results = report.run(path.name), json.loads((path / "results.json").read_text())
        assert page["head"]["row"]["pass_rate"] == results["summary"]["pass_rate"]
        assert page["head"]["results"]["gates"] == results["gates"]
        n_runs = len(page["runs"]["row"])
        assert n_runs == results["summary"]["selected"]
        held = [report.conversation(page, at)["rollout"] for at in range(n_runs)]
        rows, indices = page["rows"]["index"], page["runs"]["run"]
        assert [(each["row"], each["run"]) for each in held] == [
            (rows[row], index) for row, index in zip(page["runs"]["row"], indices, strict=True)
        ]
    assert list(report.index["comparisons"]) == [f"{a} {b}" for a, b in combinations(names, 2)]
    worse = report.page(report.index["comparisons"][f"{names[0]} {names[1]}"])
    assert (worse["a"]["name"], worse["b"]["name"]) == tuple(names[:2])
    assert sum(row["change"] == "worse" for row in worse["rows"]) > 0
    histories = {eval: report.page(id)["models"] for eval, id in report.index["histories"].items()}
    assert {eval: [len(each["points"]) for each in models] for eval, models in histories.items()} == {
        "x": [2],
        "y": [1],
    }
    table = report.index["list"]["tables"][0]
    assert [entry["run"] for entry in table] == names
    assert all(entry["finding"] for entry in table[1:])
    for name in names:
        assert name in report.static


def test_more_runs_are_compared_with_the_first_only_and_conversations_left_out_on_request(
    real_runs: RealRuns, typed: Cli, tmp_path: Path
) -> None:
    runs = real_runs.copied(tmp_path)
    names = [f"x-20261122T14000{number}Z-00000{number}" for number in range(7)]
    for name in names:
        shutil.copytree(runs.now, runs.now.with_name(name))

    typed("html", *names, "--conversations=none")

    report = Report(tmp_path / "report.html")
    assert len(report.index["comparisons"]) == 6
    assert {pair.split(" ")[0] for pair in report.index["comparisons"]} == {names[0]}
    assert {chunk for name in names for chunk in report.run(name)["runs"]["chunk"]} == {-1}


def test_a_run_that_never_ended_is_reported_as_far_as_it_got_and_a_large_report_says_how_to_get_less(
    typed: Cli, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pytest_osmosis.addons.viewer.report.LARGE", 10_000)
    stored("sums-20261122T140157Z-1ef7a3", ROLLOUT, SCORE, results=None)

    assert "--conversations=failed leaves out those of runs that passed" in typed("html")

    report = Report(tmp_path / "report.html")
    page = report.run()
    assert page["head"]["row"]["status"] == "failed"
    held = [report.conversation(page, at) for at in range(len(page["runs"]["row"]))]
    assert [each["rollout"]["messages"] for each in held if each is not None] == [ROLLOUT["messages"]]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["-o", "mine.html"], "mine.html: cannot be written: it exists, and pytest-osmosis did not write it"),
        (["-o", "."], ".: cannot be written: it is a folder"),
        (["-o", ".osmosis/runs/{run}/x.html"], "it is inside the run directory"),
        (["nobody"], 'eval run "nobody": not found'),
    ],
)
def test_what_cannot_be_done_is_said(
    typed: Cli, stored: Stored, tmp_path: Path, arguments: list[str], problem: str
) -> None:
    run = stored("sums-20261122T140157Z-1ef7a3", ROLLOUT, SCORE, results=None)
    (tmp_path / "mine.html").write_text("mine")

    assert problem in typed("html", *(each.replace("{run}", run.name) for each in arguments), fails=1)
    assert (tmp_path / "mine.html").read_text() == "mine"


def test_secrets_that_the_environment_has_are_redacted(
    typed: Cli, stored: Stored, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "sk-live-0123456789abcdef"
    monkeypatch.setenv("OPENAI_API_KEY", secret)
    said = [{"role": "user", "content": f"my key is {secret}"}, {"role": "assistant", "content": secret[:12]}]
    stored("sums-20261122T140157Z-1ef7a3", {**ROLLOUT, "messages": said, "n_prompt": 1}, SCORE, results=None)

    typed("html")

    everything = Report(tmp_path / "report.html").everything()
    assert "my key is [OPENAI_API_KEY]" in everything
    assert secret not in everything
