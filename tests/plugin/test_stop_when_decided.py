"""--osmosis-stop-when-decided: the verdict is the whole eval's, and runs that cannot change it are not paid for."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import CONFIG, Workspace
from tests.servers import ChatServer, reply

EARLY = "--osmosis-stop-when-decided"
ROWS = [{"score": float(index % 4 > 0)} for index in range(40)]
"""30 of 40 pass."""


@pytest.mark.journey
def test_an_eval_whose_gate_fails_ends_early_with_the_verdict_of_the_whole(workspace: Workspace) -> None:
    with ChatServer(reply("42")) as server:
        workspace.eval(rows=ROWS, gate={"pass_rate": ">= 0.9"}, model={"base_url": server.base_url})
        whole = workspace.run(CONFIG, "--osmosis-no-probe")
        assert (whole.ret, len(server.requests)) == (1, 40)
        verdict = workspace.results()["gates"][0]["state"]

        result = workspace.run(CONFIG, EARLY, "--osmosis-no-probe", "-rs")

        n_asked = len(server.requests) - 40
    results = workspace.results()
    assert result.ret == 1
    assert [gate["state"] for gate in results["gates"]] == [verdict] == ["fails"]
    assert n_asked < 39  # at the latest; in any order
    n_left = 40 - n_asked
    assert len(results["pending"]) == n_left
    assert (results["status"], results["stopped_by"]) == ("finished", "decided")
    reason = "gate pass_rate >= 0.9 fails whatever the other runs give"
    result.stdout.fnmatch_lines(
        [
            "  stops as soon as the gates are decided (not with -k, --lf or node ids)",
            f"SKIPPED * configs/eval/x.toml:1: *{reason}",
        ]
    )
    result.stdout.fnmatch_lines([f"{n_left} of 40 runs not needed: {reason}", "stopped early: estimates cover only*"])
    assert results["stop_reason"] == results["pending"][0]["reason"]


@pytest.mark.slow
def test_an_eval_without_a_gate_is_refused(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace.eval("x", rows=2, gate={"pass_rate": ">= 0.5"})
    workspace.eval("y", rows=2)
    monkeypatch.setenv("PYTEST_OSMOSIS_STOP_WHEN_DECIDED", "1")

    result = workspace.run("--osmosis-config=configs/eval", exits=4)

    result.stderr.fnmatch_lines(["ERROR: PYTEST_OSMOSIS_STOP_WHEN_DECIDED: the eval y has no gate, *--osmosis-gate=*"])
    assert "the eval x" not in result.stderr.str()


@pytest.mark.slow
def test_a_partial_selection_and_a_gate_that_needs_every_run_run_to_their_end(workspace: Workspace) -> None:
    workspace.eval(rows=12, gate={"pass_rate": ">= 0.1"})

    result = workspace.run(CONFIG, EARLY, "-k", "row1")

    result.assert_outcomes(passed=3, skipped=1, deselected=9)  # rows 1, 10 and 11; the gate
    result.stdout.fnmatch_lines(
        ["*(not with -k, --lf or node ids)", "did not stop early: with only some runs selected, no gate is decided"]
    )

    whole = workspace.run(CONFIG, EARLY, "--osmosis-gate=mean >= 0.1", exits=0)
    whole.stdout.fnmatch_lines(
        ["  does not stop early: gate mean >= 0.1 needs every run (its scores have no known bounds)*"]
    )
    assert workspace.results()["summary"]["total_runs"] == 12
