"""Eval runs as they are shown: `--osmosis-html`, `[output] html`, and `pytest-osmosis show` of every kind."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugin.reports import Report
from tests.plugin.workspaces import CONFIG, Workspace, wait_until
from tests.servers import ChatServer, never, reply

HTML = "--osmosis-html=report.html"


@pytest.mark.journey
def test_a_report_holds_the_results_and_every_conversation(workspace: Workspace) -> None:
    rows: list[dict[str, object]] = [{}, {"score": 0.25}, {"reward": "raises"}]
    workspace.eval(rows=rows, evaluation={"n": 2}, gate={"pass_rate": ">= 0.7"}, limits={"max_errors": 6})

    result = workspace.run(CONFIG, HTML, exits=1)

    result.stdout.re_match_lines([r"report: report\.html \(\d+\.\d [kM]B, 6 conversations\)"])
    report, results = Report(workspace.root / "report.html"), workspace.results()
    run = report.run()
    assert run["head"]["row"]["status"] == "finished"
    assert run["head"]["row"]["pass_rate"] == results["summary"]["pass_rate"]
    assert run["head"]["row"]["gates"] == ["fails"]
    outcomes = [run["head"]["outcomes"][each] for each in run["runs"]["outcome"]]
    assert outcomes == ["passed"] * 2 + ["failed"] * 2 + ["unmeasured"] * 2
    conversations = [report.conversation(run, at) for at in range(6)]
    assert [(each["rollout"]["row"], each["rollout"]["run"]) for each in conversations] == [
        (row, index) for row in range(3) for index in range(2)
    ]
    assert conversations[2]["scores"][0]["scores"] == {"rewards:score": 0.25}
    assert "ZeroDivisionError" in str(conversations[4]["scores"])
    assert "gate pass_rate &gt;= 0.7: FAILS" in report.static


def test_configs_name_reports_and_the_conversations_in_them(workspace: Workspace) -> None:
    rows = [{}, {"score": 0.0}]
    workspace.eval("a", rows=rows, output={"html": "out/{name}.html", "html_conversations": "failed"})
    workspace.eval("b", rows=rows, output={"html": "out/b.html", "html_conversations": "none"})

    result = workspace.run("--osmosis-config=configs/eval", HTML)

    result.stdout.fnmatch_lines(["report: report.html*", "report: out/a.html*", "report: out/b.html*"])
    a, b = Report(workspace.root / "out/a.html"), Report(workspace.root / "out/b.html")
    both = Report(workspace.root / "report.html")
    for report in (a, both):
        run = report.run(a.runs[0])
        assert [report.conversation(run, at) is not None for at in range(2)] == [False, True]
    assert b.run()["runs"]["chunk"] == [-1, -1]
    assert sorted(both.runs) == sorted([*a.runs, *b.runs])
    first, second = reversed(both.runs)
    comparison = both.page(both.index["comparisons"][f"{first} {second}"])
    assert comparison["sentence"]
    assert all(name in both.static for name in both.runs)


def test_the_evals_of_one_config_share_its_report(workspace: Workspace) -> None:
    workspace.eval("x", rows=[{}, {"score": 0.0}])
    toml = workspace.root / "configs/eval/x.toml"
    blocks = "".join(f'\n[[eval]]\nname = "e{number}"\nmodel = "demo/arithmetic"\n' for number in range(2))
    toml.write_text(f'{toml.read_text()}\n[output]\nhtml = "report.html"\n{blocks}')

    workspace.run(CONFIG).stdout.fnmatch_lines(["report: report.html*"])
    report = Report(workspace.root / "report.html")
    assert len(report.runs) == 2
    assert [entry["name"] for entry in report.index["list"]["tables"][0]] == ["e0", "e1"]


def test_a_report_on_a_part_does_not_replace_the_whole(workspace: Workspace) -> None:
    workspace.eval(rows=2, output={"html": "report.html"})
    workspace.run(CONFIG)
    whole = (workspace.root / "report.html").read_text()

    workspace.run("configs/eval/x.toml::x[row1-run0]").stdout.fnmatch_lines(["report: report.partial.html*"])
    assert (workspace.root / "report.html").read_text() == whole
    assert Report(workspace.root / "report.partial.html").run()["rows"]["index"] == [1]

    workspace.write("rewards.py", "def score(solution_str, ground_truth, extra_info):\n    return 0.0\n")
    stored = workspace.run_dirs()[0].name
    workspace.run(f"--osmosis-from={stored}", "-k", "row1-", "--osmosis-html=rescored.html", exits=1)

    run = Report(workspace.root / "rescored.html").run()
    assert (run["rows"]["index"], run["head"]["row"]["partial"], run["head"]["row"]["passed"]) == ([1], True, 0)


def test_after_an_interrupt_the_report_has_what_ended(workspace: Workspace) -> None:
    with ChatServer(reply("42"), never()) as server:
        workspace.hurry()
        workspace.eval(rows=3, model={"base_url": server.base_url}, evaluation={"batch_size": 2})
        session = workspace.start(CONFIG, HTML, "--osmosis-no-probe")
        wait_until(lambda: len(server.requests) == 3, "the requests")
        session.interrupt()

        assert session.wait() == 2, session.output

    report = Report(workspace.root / "report.html")
    run = report.run()
    assert run["head"]["row"]["status"] == "stopped"
    assert any(report.conversation(run, at) is not None for at in range(3))


@pytest.mark.parametrize(
    ("path", "hook", "why"),
    [
        ("out/report.html", "pathlib.Path('out').write_text('a file')", "*; pytest-osmosis html RUN*"),
        ("report.html", "path.with_name('journal.jsonl').write_text('{}\\n')", "*journal.jsonl*"),
    ],
    ids=["no folder", "no journal"],
)
def test_a_report_that_cannot_be_made_costs_nothing_else(workspace: Workspace, path: str, hook: str, why: str) -> None:
    workspace.eval(rows=1)
    workspace.write("conftest.py", f"import pathlib\n\ndef pytest_osmosis_results(path):\n    {hook}\n")

    result = workspace.run(CONFIG, f"--osmosis-html={path}", "-q", exits=0)

    result.stdout.fnmatch_lines([f"the HTML report {path} could not be written: {why}"])
    assert workspace.results()["summary"]["pass_rate"] == 1.0
    assert not (workspace.root / path).exists()


def shown(workspace: Workspace, *arguments: str) -> str:
    result = workspace.cli("show", *arguments)
    assert result.ret == 0, result.stderr.str()
    return "\n".join(result.outlines) + "\n"


def passing(*rows: float) -> list[dict[str, Any]]:
    return [{"score": score} for score in rows]


@pytest.mark.journey
def test_the_page_says_what_the_screen_said(workspace: Workspace) -> None:
    workspace.eval(rows=passing(1, 0, 1, 0.25), evaluation={"n": 2}, gate={"pass_rate": ">= 0.7"})
    screen = workspace.run(CONFIG).outlines
    (run,) = workspace.run_dirs()

    page = shown(workspace).splitlines()

    assert page[0] == f"{run.name}: finished"
    assert page[1] == "  configs/eval/x.toml, model demo/arithmetic, rollout chat, data/x.jsonl (rows: all 4), n = 2"
    blocks = [block.split("\n") for block in "\n".join(page[4:]).split("\n\n")]
    for block in blocks[:3]:  # the verdict, the statistics, the account
        begin = screen.index(block[0])
        assert screen[begin : begin + len(block)] == block
    assert blocks[0][1] == "gate pass_rate >= 0.7: FAILS: 0.500 (4 of 8 runs passed)"
    assert blocks[0][2] == f"  worst rows: row1 0 of 2, row3 0 of 2; pytest-osmosis show {run.name} row1-run0"
    rest = page[page.index("4 of 8 runs did not pass:") :]
    assert rest[1] == '  row1-run0  score 0 < 1: answered "1 * 2 = 2 #### 2", expected "2"'
    assert rest[3].startswith("  row3-run0  score 0.25 < 1: ")
    assert rest[-3:] == [
        f"one conversation:   pytest-osmosis show {run.name} row1-run0",
        f"all runs of a row:  pytest-osmosis show {run.name} row1",
        f"every run:          pytest-osmosis show {run.name} --all",
    ]


def test_the_list_of_failed_runs_is_bounded_and_what_is_not_the_whole_is_called_so(workspace: Workspace) -> None:
    workspace.eval(rows=passing(1, *[0] * 25), gate={"pass_rate": ">= 0.9"})
    workspace.run(CONFIG)
    (run,) = workspace.run_dirs()

    page, failed, every = (shown(workspace, *options) for options in ([], ["--failed"], ["--all"]))

    assert "\n25 of 26 runs did not pass (the first 20):\n" in page
    assert f"\nall 25:            pytest-osmosis show {run.name} --failed\n" in page
    assert [text.count("score 0 < 1") for text in (page, failed, every)] == [20, 25, 25]
    assert "  row0-run0   passed, score 1" in every

    workspace.run(CONFIG, "-k", "row1-")
    assert ": finished, a part of the plan\n" in shown(workspace)
    workspace.run(CONFIG, "--osmosis-smoke", "--osmosis-smoke-rows=2")
    assert "smoke: 2 of 26 runs, scores did not decide\n" in shown(workspace)
    screen = workspace.run(CONFIG, "--osmosis-stop-when-decided").outlines
    page = shown(workspace)
    assert ": finished early\n" in page
    (line,) = (line for line in page.splitlines() if "not needed" in line)
    assert line in screen
