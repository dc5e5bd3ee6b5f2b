"""Ctrl-C: finished runs are kept, the rest are pending, no process stays behind."""

from __future__ import annotations

import re

import pytest

from tests.plugin.workspaces import CONFIG, HURRY, PLAIN_AND_XDIST, Workspace, constants, hosts_under, wait_until
from tests.servers import ChatServer, held, reply


def make(workspace: Workspace, server: ChatServer) -> None:
    """Write two evals: one run is answered, the server holds two, the rest wait."""
    workspace.hurry()
    workspace.eval("x", rows=6, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
    workspace.eval("y", rows=2)


def wait_for_three(workspace: Workspace, server: ChatServer) -> None:
    """Wait until the first run is scored, and the journal knows of the two that the server holds."""
    wait_until(lambda: len(server.requests) == 3, "three requests")
    wait_until(lambda: workspace.events("score") and len(workspace.events("start")) == 3, "the first score")


@pytest.mark.journey
def test_ctrl_c_keeps_finished_runs(workspace: Workspace) -> None:
    with ChatServer(reply("42"), held(reply("42"))) as server:
        make(workspace, server)
        session = workspace.start(CONFIG, "--osmosis-config=configs/eval/y.toml", "--osmosis-no-probe")
        wait_for_three(workspace, server)

        session.interrupt()

        assert session.wait() == 2, session.output  # which fails long before the deadlines of rollouts
    results = workspace.results("x")
    assert (results["status"], results["stop_reason"]) == ("stopped", "interrupted")
    assert results["summary"]["total_runs"] == 1
    assert [run["reason"] for run in results["pending"]] == ["interrupted"] * 5
    assert [run["reason"] for run in workspace.results("y")["pending"]] == ["interrupted"] * 2
    assert "\n  interrupted: 3 of 6 runs never started, 2 did not finish\n" in session.output
    assert re.search(r"^y .* never ran ", session.output, re.MULTILINE)
    assert "KeyboardInterrupt" in session.output
    assert "INTERNALERROR" not in session.output
    assert not hosts_under(workspace.root)


@pytest.mark.slow
@PLAIN_AND_XDIST
@pytest.mark.parametrize("twice", [False, True], ids=["SIGTERM", "Ctrl-C twice"])
def test_sigterm_and_a_second_ctrl_c_end_at_once_and_keep_finished_runs(workspace: Workspace, twice: bool) -> None:
    with ChatServer(reply("42"), held(reply("42"))) as server:
        make(workspace, server)
        if twice:
            workspace.write("hurry.py", constants({**HURRY, "plugin.eval_queue.INTERRUPT_GRACE_S": 600.0}))
        session = workspace.start(CONFIG, "--osmosis-no-probe")
        wait_for_three(workspace, server)

        if twice:
            session.interrupt()
            wait_until(lambda: workspace.events("skip"), "the first Ctrl-C to be heeded")
            session.interrupt()
        else:
            session.terminate()

        assert session.wait() == 2, session.output
    results = workspace.results("x")
    assert len(results["pending"]) == 5
    assert all(run["reason"] for run in results["pending"])
    if not twice:
        assert results["summary"]["total_runs"] == 1
        assert "\ninterrupted: 3 of 6 runs never started, 2 did not finish\n" in session.output
    assert "INTERNALERROR" not in session.output
    assert not hosts_under(workspace.root)
