"""The progress line, and the files of --junitxml, --json-report, --osmosis-markdown and --osmosis-output."""

from __future__ import annotations

import re

import pytest

from pytest_osmosis.text.safe import width
from tests.plugin.workspaces import (
    CONFIG,
    EXACT,
    PLAIN_AND_XDIST,
    Workspace,
    constants,
    junit_cases,
    read_json,
)
from tests.servers import ChatServer, held, reply, slow
from tests.unit.git.repositories import commit, git


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
    for name in ("summary.md", "page", "out.json", "report.html"):
        Path(name).mkdir(exist_ok=True)
    return 1.0
"""


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


def test_results_name_the_git_commit_of_the_workspace_and_that_it_was_changed(workspace: Workspace) -> None:
    workspace.eval(rows=1)
    workspace.write("patient.py", constants({"git.PATIENCE_S": 60.0}))  # on a loaded machine git may take long
    git(workspace.root, "init")
    head = commit(workspace.root, {".gitignore": "/stdout\n/stderr\n"})  # files of pytester
    workspace.write("rewards.py", EXACT)

    workspace.run("-ppatient", CONFIG)

    provenance = workspace.results()["provenance"]
    assert (provenance["git_commit"], provenance["git_dirty"]) == (head, True)


def test_results_have_the_keys_of_eval_mode(workspace: Workspace) -> None:
    workspace.eval(rows=[{"score": 1.0}, {"score": 0.25}], evaluation={"n": 3, "pass_threshold": 0.5, "batch_size": 4})
    (workspace.root / "out.json").symlink_to("there.json")

    workspace.run(CONFIG, "--osmosis-output=out.json")

    assert (workspace.root / "out.json").is_symlink()
    results = read_json(workspace.root / "there.json")
    assert [results["provenance"][key] for key in ("git_commit", "git_dirty")] == [None, None], "there is no repository"
    config = {"model": "demo/arithmetic", "n_runs": 3, "pass_threshold": 0.5, "eval_fns": ["rewards:score"]}
    assert results["config"].items() >= config.items()
    assert (results["summary"]["total_rows"], results["summary"]["total_runs"]) == (2, 6)
    of_function = {"mean": 0.625, "std": 0.375, "min": 0.25, "max": 1.0, "pass_at_1": 0.5, "pass_at_3": 0.5}
    assert results["summary"]["eval_fns"]["rewards:score"].items() >= of_function.items()


WAITING_REWARDS = """
import os, time

def score(solution_str, ground_truth, **kwargs):
    while ground_truth != "0" and not os.path.exists("shown"):
        time.sleep(0.01)
    return 1.0
"""
"""The first run of an eval is scored at once, the others once the test has seen the line."""


def on_a_terminal(workspace: Workspace, *args: str, columns: int = 80) -> str:
    """Return the output of pytest on a terminal of that width, with three states of the line or more."""

    def seen(written: str) -> None:
        if sum(re.search("[1-9]/[0-9]+, [0-9]+% passed", state) is not None for state in live_lines(written)) >= 3:
            (workspace.root / "shown").touch()

    workspace.write("rewards.py", WAITING_REWARDS)
    workspace.hurry()
    return workspace.on_terminal("-pno:cacheprovider", *args, columns=columns, seen=seen)[0]


def live_lines(written: str) -> list[str]:
    return [
        re.sub(r"\x1b\[\w*", "", line).rstrip()
        for line in re.findall(r"\r([^\r\n]*x [^\r\n]*\d+/\d+[^\r\n]*)", written)
    ]


@pytest.mark.journey
def test_on_a_terminal_the_line_is_rewritten_and_erased_at_the_end(workspace: Workspace) -> None:
    workspace.eval("評価 x", rows=8)

    written = on_a_terminal(workspace, "--osmosis-config=configs/eval/評価 x.toml", columns=50)

    lines = live_lines(written)
    assert len(lines) > 2
    assert all(width(line) < 50 for line in lines)
    assert re.search(r"\d/8, 100% passed", lines[-1])
    after = written[written.rindex("/8") :]
    assert re.match(r"[^\r\n]*\r *\r", after), "the last one is wiped before anything else is written"
    in_place = re.findall(r"\r([^\r\n]+)\r", re.sub(r"\x1b\[[\d;]*m", "", written))
    assert any("評価 x" in line for line in in_place)
    assert {width(line) for line in in_place} == {49}, "each wipes the one before, and none wraps"


def on_screen(written: str) -> list[str]:
    """Return the final state of the terminal, with text after a carriage return over earlier text."""
    lines = []
    for line in re.sub(r"\x1b\[[\d;]*m", "", written).split("\n"):
        shown = ""
        for part in line.split("\r"):
            shown = part + shown[len(part) :]
        lines.append(shown.rstrip())
    return lines


def test_slow_workers_are_reported_on_a_clean_line(workspace: Workspace) -> None:
    """Rollouts begin when the first xdist worker has collected; xdist continues to count the others."""
    workspace.eval(rows=8)
    late = "import os, time\nif os.environ.get('PYTEST_XDIST_WORKER') == 'gw1':\n    time.sleep(1)\n"
    workspace.write("conftest.py", late)

    written = on_a_terminal(workspace, "-n2", CONFIG)

    assert live_lines(written)
    assert [line for line in on_screen(written) if "workers [" in line] == ["2 workers [8 items]"]


def test_output_of_a_python_test_stays_and_quiet_leaves_the_line_and_nothing_else(workspace: Workspace) -> None:
    workspace.eval(rows=4)
    text = "import time\n\ndef test_python():\n    time.sleep(0.3)\n    print('never hidden')\n    assert False\n"
    workspace.write("test_python.py", text)

    written = on_a_terminal(workspace, "-s", "-q", "test_python.py", "configs/eval/x.toml")

    screen = on_screen(written)
    assert screen[screen.index("never hidden") + 1] == "F"
    assert live_lines(written)
    assert "osmosis: x (configs" not in written
    assert "...." not in written


@PLAIN_AND_XDIST
def test_the_line_is_updated_while_no_report_arrives(workspace: Workspace) -> None:
    """Only the first run is answered, so everything printed afterwards is due to time."""
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        model, execution = {"base_url": server.base_url}, {"watchdog_s": 1}
        workspace.eval(rows=4, evaluation={"batch_size": 2}, model=model, execution=execution)
        session = workspace.start(CONFIG, "--osmosis-no-probe")

        session.wait_for("osmosis x: nothing has finished for")
        session.wait_for("osmosis: x 1/4, 100% passed")
        server.release()

        assert session.wait() == 0, session.output


def test_several_evals_share_a_line_that_counts_all(workspace: Workspace) -> None:
    """One that was stopped is done, and its missing runs do not count."""
    with ChatServer(reply("42"), reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("down", rows=5, model={"base_url": "http://127.0.0.1:9/v1", "max_retries": 0})
        workspace.eval("set2", rows=3)
        workspace.eval("set10", rows=4, model={"base_url": server.base_url})
        workspace.eval("set11", rows=5)
        session = workspace.start("--osmosis-config=configs/eval")

        session.wait_for("osmosis: 2/4 evals, 4/12 runs, set10 1/4, 100% passed, mean 1.000, 1 in flight")
        server.release()

        assert session.wait() == 9, session.output
