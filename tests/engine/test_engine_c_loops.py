"""Code that holds the interpreter's lock and never returns to Python: its timeout is reported, with its stack.

No thread of its host runs any longer, so the engine must find out which run it is. Its clock is put forward once code
in C has noted in a file that it holds the lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pytest_osmosis.engine.pulse import SILENT_S
from pytest_osmosis.host.pulse import read_stacks
from pytest_osmosis.record.run_record import UNINTERRUPTIBLE
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
    """An eval whose engine goes by `clock`."""

    def __init__(self, workspace: Workspace, live: Live, clock: ThreadClock) -> None:
        self.live = live
        self._root = workspace.root
        self._clock = clock

    def holds(self, role: str, seconds: float = TIMEOUT_S) -> Path:
        """Let code in C hold a host for that long, once nothing else is under way; return the file that it noted."""
        host, live, clock = self.live.host(role), self.live, self._clock
        pulse, file = host._pulse, self._root / f"held-{host.pid}"

        def looked() -> bool:
            return pulse._looked_at == clock.now() or host.join(0)

        def has_answered() -> bool:
            stacks = read_stacks(pulse._answer())
            return bool(stacks) and stacks[0][0].name == "<module>"  # the whole stack of the main thread

        live.wait_for(lambda: file.read_bytes()[0], "for code in C")
        live.wait_for(
            lambda: [each.connection for each in live.hosts if each.is_busy or not each.ready] == [host],
            "for all others, also to start: the engine ends those that do not",
        )
        for step_s in (1, SILENT_S, seconds, 1):
            clock.advance(step_s)
            live.wait_for(looked, "for the engine to look")
            if step_s == SILENT_S:
                live.wait_for(has_answered, "for the stack of the host")
        return file


@contextmanager
def running_in_c(workspace: Workspace) -> Iterator[LiveInC]:
    evaluation = {"agent_workflow_timeout_s": TIMEOUT_S, "grader_timeout_s": TIMEOUT_S}
    clock = ThreadClock()
    with running(workspace.config(None, evaluation=evaluation), clock=clock) as live:
        yield LiveInC(workspace, live, clock)
        live.wait()


def times_begun(live: Live, row: int) -> int:
    """Return how often a row was rolled out."""
    return [event["row"] for event in live.events("start")].count(row)


def test_an_agent_in_a_c_loop_is_a_timeout_and_is_rolled_out_once(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    with running_in_c(workspace) as in_c:
        in_c.holds("host")
    live = in_c.live
    record = live.record(1)
    assert (record.boundary, record.attempt) == ("timeout", 1)
    assert str(record.error).startswith(UNINTERRUPTIBLE)
    assert f'agent.py", line 15, in loop\n    {LOOP}' in live.outcome(1).text
    assert "pytest_osmosis" not in live.outcome(1).text
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live, 1) == 1
    assert not [text for text in live.run.engine.notices.texts if "code in C" in text], "it is ended once"


def test_a_c_loop_in_a_task_of_an_agent_is_found_in_quarantine_at_the_latest(workspace: Workspace) -> None:
    workspace.agent(AGENT.replace("await loop()", "await asyncio.create_task(loop())"))
    with running_in_c(workspace) as in_c:
        in_c.holds("host")
        in_c.holds("quarantine")
    live = in_c.live
    record = live.record(1)
    assert (record.boundary, str(record.error).startswith(UNINTERRUPTIBLE)) == ("timeout", True)
    assert LOOP in live.outcome(1).text
    assert live.kinds() == ["passed", "error", "passed", "passed"]


@pytest.mark.parametrize(("define", "role"), [("def", "scorer"), ("async def", "host")], ids=["sync", "async"])
def test_a_reward_function_in_a_c_loop_is_a_reward_error(workspace: Workspace, define: str, role: str) -> None:
    workspace.agent(ANSWERS)
    workspace.write("rewards.py", SCORER.replace("DEF", define))
    with running_in_c(workspace) as in_c:
        in_c.holds(role)
    live = in_c.live
    error = live.record(1).scorer_errors["rewards:exact"]
    assert error.message.startswith(UNINTERRUPTIBLE)
    assert f'rewards.py", line 13, in exact\n    {LOOP}' in error.details
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert times_begun(live, 1) == 1


def test_a_long_c_call_within_the_time_is_no_timeout(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    with running_in_c(workspace) as in_c:
        with in_c.holds("host", TIMEOUT_S / 2).open("r+b") as file:
            file.write(b"\1\1")
    assert in_c.live.kinds() == ["passed"] * 4
    assert in_c.live.record(1).attempt == 1
