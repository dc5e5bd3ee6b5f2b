"""`runs stop` and `runs logs`, of evals that pytest runs in a terminal or in the background."""

from __future__ import annotations

import json

import pytest

from pytest_osmosis.record.lifecycle import REQUESTED
from tests.cli.background import Background
from tests.plugin.workspaces import DEADLINE_S, hosts_under, wait_until


@pytest.mark.journey
def test_a_stopped_eval_finishes_what_is_in_flight_and_leaves_the_others_alone(background: Background) -> None:
    background.workspace.eval("y", rows=2)
    session = background.workspace.start(
        "--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml", "-rs"
    )
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    wait_until(lambda: len(background.workspace.events("start")) == 2, "the journal to know of them")
    stopping = background.start("runs", "stop", "x", "--yes")
    assert stopping.stdout is not None
    assert stopping.stdout.readline() == "stopping: 2 rollouts in flight (Ctrl-C ends only this command)\n"
    wait_until(lambda: background.workspace.events("skip"), "the runs that will not begin")
    assert stopping.poll() is None, "the command waits"
    background.go()

    said, _ = stopping.communicate(timeout=DEADLINE_S)

    assert session.wait() == 9, session.output
    assert stopping.returncode == 0, said
    assert said.splitlines()[-1].endswith(" is stopped: stopped with pytest-osmosis runs stop")
    assert background.begun() == 2
    assert background.workspace.results("x")["stopped_by"] == "requested"
    assert background.workspace.results("x")["summary"]["total_runs"] == 2
    assert background.workspace.results("y")["status"] == "finished"
    assert "\nstopped with pytest-osmosis runs stop\n" in session.output
    assert "x[stop]" in session.output
    assert not hosts_under(background.root)
    again = background.call("runs", "stop", "x", exits=1)
    assert (
        "is not running, so there is nothing to stop; its status is stopped: stopped with pytest-osmosis runs stop"
        in again
    )


@pytest.mark.slow
def test_an_eval_that_waits_for_another_one_never_begins(background: Background) -> None:
    background.workspace.eval("y", rows=2)
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml", "--osmosis-config=configs/eval/y.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    stopping = background.start("runs", "stop", "y", "--yes")
    assert stopping.stdout is not None
    name = background.workspace.run_dirs("x")[0].name
    assert f"stopping: nothing in flight; it ends with {name}, of the same command" in stopping.stdout.readline()
    background.go()
    said, _ = stopping.communicate(timeout=DEADLINE_S)

    assert session.wait() == 9, session.output
    assert said.splitlines()[-1].endswith(" is stopped: stopped with pytest-osmosis runs stop")
    assert background.workspace.results("x")["status"] == "finished"
    assert [run["reason"] for run in background.workspace.results("y")["pending"]] == [REQUESTED] * 2


@pytest.mark.slow
def test_without_a_terminal_nothing_is_stopped_unless_yes(background: Background) -> None:
    background.workspace.hurry()
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")

    said = background.call("runs", "stop", "latest", exits=2)

    assert said == "not stopped: there is no terminal to ask on; add --yes to answer yes beforehand\n"
    assert not session.ended

    document = json.loads(background.call("runs", "stop", "latest", "--yes", "--now", "--json"))

    assert document["status"] == "stopped"
    assert session.wait() == 2, session.output
    assert not hosts_under(background.root)


SECRET = "sk-live-0123456789abcdef"
LOUD = """
import os
os.write(2, f"loaded with {os.environ['X_SECRET']} \\x1b[31mred\\x1b[0m\\n".encode())
"""


@pytest.mark.slow
def test_logs_of_a_session_in_a_terminal_are_what_user_code_printed_outside_of_runs(
    background: Background, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("X_SECRET", SECRET)
    background.workspace.eval(
        "x", rows=2, agent={"agent": "agent:rollout"}, evaluation={"batch_size": 2}, secrets={"required": ["X_SECRET"]}
    )
    with (background.root / "agent.py").open("a") as agent:
        agent.write(LOUD)
    session = background.workspace.start("--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: background.begun() == 2, "the first rollouts")
    follower = background.start("runs", "logs", "latest", "--follow")
    whole = background.call("runs", "logs", "latest")
    background.go()

    assert session.wait() == 0, session.output
    followed, _ = follower.communicate(timeout=DEADLINE_S)
    name = background.workspace.run_dirs()[0].name
    loaded = "loaded with [X_SECRET] \\x1b[31mred\\x1b[0m"
    assert followed.splitlines() == [
        f"{name} was not submitted: this is only what user code prints outside of runs",
        f"user code | {loaded}",
        f"{name}: finished",
    ]
    assert whole.splitlines() == [
        f"{name} was not submitted: the terminal that ran it has the output of pytest",
        "output of user code that belongs to no run (host.log):",
        loaded,
    ]
    document = json.loads(background.call("runs", "logs", "latest", "--json", "--tail", "1"))
    assert document["host"] == ["loaded with [X_SECRET] \x1b[31mred\x1b[0m"]
    assert (document["submitted"], document["status"], document["session"]) == (False, "finished", [])
