"""-x, --maxfail, Ctrl-C, SIGTERM, and kills: finished runs are kept, and no process stays behind."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tests.plugin.test_stress import MARK
from tests.plugin.workspaces import (
    CONFIG,
    HURRY,
    PLAIN_AND_XDIST,
    UNDER_XDIST,
    Workspace,
    constants,
    hosts_under,
    junit_cases,
    processes_with,
    wait_until,
)
from tests.servers import ChatServer, by_row, held, reply


@PLAIN_AND_XDIST
def test_maxfail_keeps_further_runs_from_beginning(workspace: Workspace) -> None:
    with ChatServer(by_row({0: [reply("42")], 1: [reply("42")]}, held(reply("42")))) as server:
        workspace.hurry()
        model = {"base_url": server.base_url}
        workspace.eval(rows=[{"score": 0.0}] * 8, evaluation={"batch_size": 2}, execution={"hosts": 1}, model=model)

        result = workspace.run(CONFIG, "--maxfail=2", "--osmosis-no-probe", "--junitxml=junit.xml")

        assert result.ret == (2 if workspace.distributed else 1)
        assert result.parseoutcomes()["failed"] == 2
        assert server.max_in_flight <= 2
        assert len(server.requests) <= 5
    results = workspace.results()
    assert results["status"] == "stopped"
    assert results["summary"]["total_runs"] == results["summary"]["measured"] == 2
    assert len(results["pending"]) == 6
    cases = junit_cases(workspace.root / "junit.xml").values()
    assert sum(case.find("failure") is not None for case in cases) == 2, "what was prevented has no report"
    assert all(pending["reason"] for pending in results["pending"])
    assert not hosts_under(workspace.root)


@PLAIN_AND_XDIST
def test_x_ends_evals_that_have_not_started(workspace: Workspace) -> None:
    with ChatServer(by_row({0: [reply("42")]}, held(reply("42")))) as server, ChatServer() as of_y:
        workspace.hurry()
        workspace.eval("x", rows=[{"score": 0.0}, {}], model={"base_url": server.base_url})
        workspace.eval("y", rows=2, model={"base_url": of_y.base_url})

        result = workspace.run(CONFIG, "--osmosis-config=configs/eval/y.toml", "-x", "--osmosis-no-probe")

        assert result.ret == (2 if workspace.distributed else 1)
        assert not of_y.requests
    pending = workspace.results("y")["pending"]
    assert len(pending) == 2
    assert all(run["reason"] for run in pending)
    assert not hosts_under(workspace.root)


@pytest.mark.parametrize("status", [7, 0])
def test_an_exit_status_that_a_test_sets_stays_and_what_ran_is_printed(workspace: Workspace, status: int) -> None:
    workspace.hurry()
    workspace.write("test_python.py", f"import pytest\ndef test_python(): pytest.exit('bye', {status})\n")
    with ChatServer(held(reply("42"))) as server:
        workspace.eval(rows=4, gate={"pass_rate": ">= 0.9"}, model={"base_url": server.base_url})

        result = workspace.run(CONFIG, "test_python.py", "--osmosis-no-probe")

    assert result.ret == status
    summaries = [line for line in result.outlines if line.startswith("results: .osmosis/runs/x-")]
    assert len(summaries) == 1
    assert workspace.results()["status"] == "stopped"


def test_a_test_that_exits_under_xdist_is_not_green(workspace: Workspace) -> None:
    workspace.hurry()
    workspace.eval(rows=4)
    workspace.write("test_python.py", "import pytest\ndef test_python(): pytest.exit('bye', 7)\n")

    result = workspace.run(CONFIG, "test_python.py", "-n2")

    assert result.ret == pytest.ExitCode.INTERNAL_ERROR, "xdist itself does not survive it"
    result.stdout.fnmatch_lines(["results: .osmosis/runs/x-*"])


@PLAIN_AND_XDIST
def test_a_python_test_that_fails_stops_evals(workspace: Workspace) -> None:
    with ChatServer(held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval(rows=4, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        workspace.write("test_python.py", "def test_python(): raise AssertionError\n")

        result = workspace.run(CONFIG, "test_python.py", "-x", "--osmosis-no-probe")

    assert result.ret == (2 if workspace.distributed else 1)
    assert len(workspace.results()["pending"]) == 4
    assert not hosts_under(workspace.root)


@PLAIN_AND_XDIST
@pytest.mark.parametrize("twice", [False, True], ids=["SIGTERM", "Ctrl-C twice"])
def test_sigterm_and_a_second_ctrl_c_end_at_once_and_keep_finished_runs(workspace: Workspace, twice: bool) -> None:
    with ChatServer(reply("42"), held(reply("42"))) as server:
        workspace.hurry()
        workspace.eval("x", rows=6, evaluation={"batch_size": 2}, model={"base_url": server.base_url})
        workspace.eval("y", rows=2)
        if twice:
            workspace.write("hurry.py", constants({**HURRY, "plugin.eval_queue.INTERRUPT_GRACE_S": 600.0}))
        session = workspace.start(CONFIG, "--osmosis-no-probe")
        wait_until(lambda: len(server.requests) == 3, "three requests")
        wait_until(lambda: workspace.events("score") and len(workspace.events("start")) == 3, "the first score")

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


C_LOOP = """
import itertools, os, pathlib

def loop():
    pathlib.Path(f"looping-{os.getpid()}").touch()
    sum(itertools.repeat(0))  # holds the lock of the interpreter for ever
"""
AGENT = "from c_loop import loop\n\nasync def rollout(ctx):\n    loop()\n"
FORKING = """
import os
from c_loop import loop

async def rollout(ctx):
    if os.fork() == 0:
        loop()
    while not any(name.startswith("looping") for name in os.listdir()):
        pass
    loop()
"""
ASYNC_SCORE = "from c_loop import loop\n\nasync def score(solution_str):\n    loop()\n"
SCORE = "from c_loop import loop\n\ndef score(solution_str, ground_truth):\n    loop()\n"


@pytest.fixture
def marked(monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[int]]:
    """Return the function that finds the processes which the test started."""
    mark = uuid.uuid4().hex
    monkeypatch.setenv(MARK, mark)
    return lambda: processes_with(f"{MARK}={mark}")


def killed_in_loops(workspace: Workspace, n_loops: int, *args: str) -> None:
    """Start pytest, and kill it once `n_loops` processes are in a loop."""
    workspace.write("c_loop.py", C_LOOP)
    session = workspace.start(*args)
    wait_until(lambda: len(list(workspace.root.glob("looping-*"))) >= n_loops, "processes in a C loop")
    session.kill_only()


@pytest.mark.parametrize(
    ("agent", "rewards", "n_loops"),
    [(AGENT, SCORE, 1), (FORKING, SCORE, 2), (None, SCORE, 1), (None, ASYNC_SCORE, 1)],
    ids=["agent", "forked by an agent", "scorer", "async scoring"],
)
def test_hosts_end_with_a_killed_pytest(
    workspace: Workspace, marked: Callable[[], list[int]], agent: str | None, rewards: str, n_loops: int
) -> None:
    workspace.write("rewards.py", rewards)
    if agent is not None:
        workspace.write("agent.py", agent)
    workspace.eval(rows=2, agent={"agent": "agent:rollout"} if agent else {})
    killed_in_loops(workspace, n_loops, "--osmosis-config=configs/eval/x.toml")
    wait_until(lambda: not marked(), "the hosts to end")


@pytest.mark.parametrize(
    ("workspace", "args"),
    [([], ("--osmosis-lab", "-klab")), (["-n2"], ("-k", "cases"))],
    ids=["children of the lab", "workers of xdist"],
    indirect=["workspace"],
)
def test_tests_of_reward_functions_end_with_a_killed_pytest(
    workspace: Workspace, marked: Callable[[], list[int]], args: tuple[str, ...]
) -> None:
    workspace.write("rewards.py", SCORE)
    workspace.write("rewards.cases.toml", '[[score]]\nsolution_str = "1"\nground_truth = "1"\nexpect = 1\n')
    killed_in_loops(workspace, 1, "rewards.py", *args)
    wait_until(lambda: not marked(), "the processes to end")


@UNDER_XDIST
def test_children_of_the_lab_end_with_a_killed_worker(workspace: Workspace, marked: Callable[[], list[int]]) -> None:
    workspace.write("c_loop.py", C_LOOP)
    workspace.write("rewards.py", SCORE)
    session = workspace.start("rewards.py", "--osmosis-lab", "-klab")
    wait_until(lambda: list(workspace.root.glob("looping-*")), "a process in a C loop")
    looping = {int(path.name.partition("-")[2]) for path in workspace.root.glob("looping-*")}
    session.kill_workers()
    wait_until(lambda: not looping & set(marked()), "the processes of the lab to end")
    session.kill_only()
    wait_until(lambda: not marked(), "every process to end")
