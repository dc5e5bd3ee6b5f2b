"""The files of --junitxml, --json-report and --osmosis-markdown."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, PLAIN_AND_XDIST, Workspace, junit_cases, read_json
from tests.servers import ChatServer, reply, slow


@pytest.mark.slow
@PLAIN_AND_XDIST
def test_durations_cover_rollout_and_scoring(workspace: Workspace) -> None:
    with ChatServer(slow(0.3, reply("42"))) as server:
        workspace.eval(rows=4, model={"base_url": server.base_url})

        workspace.run(CONFIG, "--junitxml=junit.xml", "--osmosis-no-probe")

    for row in workspace.results()["rows"]:
        run = row["runs"][0]
        took_s = float(junit_cases(workspace.root / "junit.xml")[f"x[row{row['row_index']}-run0]"].attrib["time"])
        assert abs(took_s - (run["duration_ms"] + run["scoring_ms"]) / 1000) < 0.01


@pytest.mark.journey
def test_junit_and_json_reports_hold_each_runs_properties(workspace: Workspace) -> None:
    rows: list[dict[str, object]] = [{"score": 1.0}, {"score": 0.25}, {"reward": "raises"}]
    prices = {"demo/arithmetic": {"input": 1.0, "output": 2.0}}
    workspace.eval(rows=rows, gate={"pass_rate": ">= 0.1"}, prices=prices, limits={"max_errors": 3})

    workspace.run(CONFIG, "--junitxml=junit.xml", "--json-report", "--json-report-file=report.json")

    junit, document = junit_cases(workspace.root / "junit.xml"), read_json(workspace.root / "report.json")
    report = {test["nodeid"].partition("::")[2]: test for test in document["tests"]}
    outcomes = {name: test["outcome"] for name, test in report.items()}
    gate = {"x[gate pass_rate >= 0.1]": "passed"}
    assert outcomes == {"x[row0-run0]": "passed", "x[row1-run0]": "xfailed", "x[row2-run0]": "xfailed", **gate}
    assert document["exitcode"] == 0
    runs = [row["runs"][0] for row in workspace.results()["rows"]]
    expected = [("passed", "true", 1.0), ("failed", "false", 0.25), ("reward", "false", None)]
    for row, (outcome, passed, score) in enumerate(expected):
        properties = {
            "osmosis.outcome": outcome,
            "osmosis.pass": passed,
            "osmosis.duration_ms": runs[row]["duration_ms"],
            "osmosis.tokens": runs[row]["tokens"],
            "osmosis.cost_usd": runs[row]["cost_usd"],
            **({"osmosis.score": score} if score is not None else {}),
        }
        name = f"x[row{row}-run0]"
        written = {each.attrib["name"]: each.attrib["value"] for each in junit[name].iter("property")}
        assert written == {key: str(value) for key, value in properties.items()}
        listed = report[name]["user_properties"]
        assert {key: value for each in listed for key, value in each.items()} == properties


IN_THE_WAY = """
from pathlib import Path

def score(solution_str, **kwargs):
    for name in ("summary.md", "page", "out.json"):
        Path(name).mkdir(exist_ok=True)
    return 1.0
"""


@pytest.mark.slow
def test_files_that_cannot_be_written_are_errors(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(workspace.root / "page"))
    workspace.write("rewards.py", IN_THE_WAY)
    workspace.eval(gate={"pass_rate": ">= 0.1"})

    result = workspace.run(CONFIG, "--osmosis-markdown=summary.md", "--osmosis-output=out.json", "-rE", exits=1)

    result.assert_outcomes(passed=4, errors=2)
    result.stdout.fnmatch_lines_random("""
        ERROR configs/eval/x.toml::x?results? - out.json could not be written*
        ERROR configs/eval/x.toml::x?markdown? - summary.md could not be written*
        out.json could not be written: Is a directory
        summary.md could not be written: Is a directory
        page could not be written: Is a directory
        results: .osmosis/runs/*
    """)
    assert len(workspace.results()["rows"]) == 3
