"""`pytest-osmosis html`."""

from __future__ import annotations

import json
import shutil
from itertools import combinations
from pathlib import Path

import pytest

from tests.cli.real_runs import RealRuns
from tests.cli.stored_runs import ROLLOUT, SCORE, Cli, Stored
from tests.plugin.reports import Report


def test_a_report_on_runs_holds_their_pages_comparisons_and_histories(
    there: Cli, real_runs: RealRuns, tmp_path: Path
) -> None:
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
    assert {eval: len(report.page(id)["points"]) for eval, id in report.index["histories"].items()} == {"x": 2, "y": 1}
    table = report.index["list"]["tables"][0]
    assert [entry["run"] for entry in table] == names
    assert all(entry["finding"] for entry in table[1:])
    for name in names:
        assert name in report.static


def test_more_runs_are_compared_with_the_first_only(real_runs: RealRuns, typed: Cli, tmp_path: Path) -> None:
    runs = real_runs.copied(tmp_path)
    names = [f"x-20261122T14000{number}Z-00000{number}" for number in range(7)]
    for name in names:
        shutil.copytree(runs.now, runs.now.with_name(name))

    typed("html", *names)

    report = Report(tmp_path / "report.html")
    assert len(report.index["comparisons"]) == 6
    assert {pair.split(" ")[0] for pair in report.index["comparisons"]} == {names[0]}


def test_conversations_are_left_out_on_request(there: Cli, real_runs: RealRuns, tmp_path: Path) -> None:
    there("html", "x", "--conversations=failed", "-o", str(tmp_path / "failed.html"))

    report = Report(tmp_path / "failed.html")
    page = report.run()
    passed = [page["head"]["outcomes"][each] == "passed" for each in page["runs"]["outcome"]]
    assert [chunk < 0 for chunk in page["runs"]["chunk"]] == passed
    assert any(passed)
    assert not all(passed)


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
        (["nobody"], 'run "nobody": not found'),
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
