"""`pytest-osmosis show` of eval runs of every kind, which pytest has made."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plugin.workspaces import CONFIG, Workspace


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


def test_the_list_of_failed_runs_is_bounded_unless_all_are_asked_for(workspace: Workspace) -> None:
    workspace.eval(rows=passing(1, *[0] * 25), gate={"pass_rate": ">= 0"})
    workspace.run(CONFIG)
    (run,) = workspace.run_dirs()

    page, failed, every = (shown(workspace, *options) for options in ([], ["--failed"], ["--all"]))

    assert "\n25 of 26 runs did not pass (the first 20):\n" in page
    assert page.count("score 0 < 1") == 20
    assert f"\nall 25:            pytest-osmosis show {run.name} --failed\n" in page
    assert failed.count("score 0 < 1") == 25
    assert "  row0-run0   passed, score 1" in every
    assert every.count("score 0 < 1") == 25


def test_a_part_a_smoke_test_and_an_eval_that_was_decided_early_are_called_so(workspace: Workspace) -> None:
    workspace.eval(rows=passing(*[1] * 40), gate={"pass_rate": ">= 0.1"})
    workspace.run(CONFIG, "-k", "row1-")
    assert ": finished, a part of the plan\n" in shown(workspace)
    workspace.run(CONFIG, "--osmosis-smoke", "--osmosis-smoke-rows=2")
    assert "smoke: 2 of 40 runs, scores did not decide\n" in shown(workspace)
    screen = workspace.run(CONFIG, "--osmosis-stop-when-decided").outlines
    page = shown(workspace).splitlines()
    assert page[0].endswith(": finished early")
    (line,) = (line for line in page if "not needed" in line)
    assert line in screen
