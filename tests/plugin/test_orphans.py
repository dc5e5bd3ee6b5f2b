"""The end of a pytest that is killed: every process of its ends too, whatever holds the interpreter's lock there."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from tests.plugin.test_stress import MARK
from tests.plugin.workspaces import UNDER_XDIST, Workspace, processes_with, wait_until

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
