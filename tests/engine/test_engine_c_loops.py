"""Code that holds the interpreter's lock and never returns to Python: its host is ended, and quarantine finds its run.

The engine's clock is put forward once code in C has noted in a file that it holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_osmosis.engine.host_connection import Connection
from pytest_osmosis.engine.host_starts import Host
from pytest_osmosis.engine.hosts import SILENCE_SLACK_S
from pytest_osmosis.engine.run_table import Stage
from tests.clocks import ThreadClock
from tests.engine.evaluating import Live, Workspace, running

pytestmark = pytest.mark.slow

TIMEOUT_S = 600
IN_C = """
import glob, itertools, mmap, os
from functools import partial

IS_FIRST = not glob.glob("held-*")
with open(f"held-{os.getpid()}", "w+b") as file:
    file.truncate(2)
    held = mmap.mmap(file.fileno(), 2)
is_free = partial(held.__getitem__, 1)
"""
LOOP = 'sum(itertools.chain(map(held.write, [b"1"]), iter(is_free, 1)))'
"""It notes that it holds the lock, and lasts until another process sets the second byte to 1."""
AGENT = f"""{IN_C}
ALL, FREED = asyncio.Barrier(4), asyncio.Event()

async def loop():
    {LOOP}
    FREED.set()

async def rollout(ctx):
    if IS_FIRST:
        await ALL.wait()
    if ctx.row_index == 1:
        await loop()
    elif IS_FIRST:
        await FREED.wait()
    return [*ctx.prompt, {{"role": "assistant", "content": "42"}}]
"""
ANSWERS = """
async def rollout(ctx):
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""
SCORER = f"""{IN_C}
DEF exact(solution_str, ground_truth, extra_info):
    if extra_info["user_prompt"] == "row 1":
        {LOOP}
    return 1.0
"""


class LiveInC:
    """An eval whose engine goes by `clock`. The code in C is an agent, or a function that `scores`."""

    def __init__(self, workspace: Workspace, live: Live, clock: ThreadClock, *, scores: bool) -> None:
        self.live = live
        self._scores = scores
        self._root = workspace.root
        self._clock = clock

    def holds(self, role: str, seconds: float = TIMEOUT_S + SILENCE_SLACK_S + 1) -> Path:
        """Let code in C hold a host for that long, once nothing else is under way; return the file that it noted."""
        host, live = self.live.host(role), self.live
        file = self._root / f"held-{host.pid}"
        live.wait_for(lambda: file.read_bytes()[0], "for code in C")
        live.wait_for(
            lambda: [each.connection for each in live.hosts if each.is_busy or not each.ready] == [host],
            "for all others, also to start: the engine ends those that do not",
        )
        live.wait_for(lambda: all(self._has_begun(each) for each in live.hosts if each.is_busy), "for its last event")
        self._clock.advance(seconds)
        return file

    def _has_begun(self, host: Host) -> bool:
        """Return True if the engine knows that code in C has begun. No event comes after that."""
        if self._scores:
            return any(state.run.row == 1 and host in state.running for state in host.runs)
        return all(state.stage is Stage.ROLLING for state in host.runs)

    def _connections(self) -> list[Connection]:
        return [each.connection for each in self.live.hosts]

    def holds_two(self, *roles: str) -> None:
        """Let code in C hold a host, and the one in which it is repeated, until the engine ends them."""
        for role in roles:
            host = self.live.host(role)
            self.holds(role)
            self.live.wait_for(lambda host=host: host not in self._connections(), "for its end")  # type: ignore[misc]


@contextmanager
def running_in_c(workspace: Workspace, *, scores: bool = False) -> Iterator[LiveInC]:
    evaluation = {"agent_workflow_timeout_s": TIMEOUT_S, "grader_timeout_s": TIMEOUT_S}
    clock = ThreadClock()
    with running(workspace.config(None, evaluation=evaluation), clock=clock) as live:
        yield LiveInC(workspace, live, clock, scores=scores)
        live.wait()


def times_begun(live: Live) -> list[int]:
    """Return how often each row was rolled out."""
    rows = [event["row"] for event in live.events("start")]
    return [rows.count(row) for row in range(4)]


def test_an_agent_in_a_c_loop_ends_two_hosts_and_its_neighbours_are_rolled_out_once_more(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    with running_in_c(workspace) as in_c:
        in_c.holds_two("host", "quarantine")
    live = in_c.live
    record = live.record(1)
    assert (record.boundary, record.attempt) == ("agent", 2)
    assert str(record.error) == "ended its process twice (it sent nothing for 610 s)"
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live) == [2, 2, 2, 2]


@pytest.mark.parametrize(
    ("define", "roles"),
    [("def", ("scorer", "scorer")), ("async def", ("host", "quarantine"))],
    ids=["sync", "async"],
)
def test_a_reward_function_in_a_c_loop_is_a_reward_error(
    workspace: Workspace, define: str, roles: tuple[str, str]
) -> None:
    workspace.agent(ANSWERS)
    workspace.write("rewards.py", SCORER.replace("DEF", define))
    with running_in_c(workspace, scores=True) as in_c:
        in_c.holds_two(*roles)
    live = in_c.live
    error = live.record(1).scorer_errors["rewards:exact"]
    assert error.message == "ended its process twice (it sent nothing for 610 s)"
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live)[1] == 1


def test_a_long_c_call_within_the_time_is_no_timeout(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    with running_in_c(workspace) as in_c:
        with in_c.holds("host", TIMEOUT_S / 2).open("r+b") as file:
            file.write(b"\1\1")
    assert in_c.live.kinds() == ["passed"] * 4
    assert in_c.live.record(1).attempt == 1
