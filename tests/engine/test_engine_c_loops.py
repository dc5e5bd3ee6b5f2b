"""Code that holds the interpreter's lock and never returns to Python: its host is ended, and quarantine finds its run.

The engine's clock is put forward once code in C has noted in a file that it holds the lock.
"""

from __future__ import annotations

from functools import partial

import pytest

from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.engine.hosts import SILENCE_SLACK_S
from pytest_osmosis.engine.run_table import Stage
from tests.clocks import ThreadClock
from tests.engine.evaluating import Workspace, running

pytestmark = pytest.mark.slow

TIMEOUT_S = 600
AGENT = """
import glob, itertools, mmap

IS_FIRST = not glob.glob("held-*")
with open(f"held-{os.getpid()}", "w+b") as file:
    file.truncate(1)
    held = mmap.mmap(file.fileno(), 1)
ALL = asyncio.Barrier(4)

async def rollout(ctx):
    if IS_FIRST:
        await ALL.wait()
    if ctx.row_index == 1:
        sum(itertools.chain(map(held.write, [b"1"]), itertools.repeat(0)))  # it notes that it holds the lock
    elif IS_FIRST:
        await asyncio.Event().wait()
    return [*ctx.prompt, {"role": "assistant", "content": "42"}]
"""


def test_an_agent_in_a_c_loop_ends_two_hosts_and_its_neighbours_are_rolled_out_once_more(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    clock = ThreadClock()
    config = workspace.config(None, evaluation={"agent_workflow_timeout_s": TIMEOUT_S})
    with running(config, clock=clock) as live:

        def is_held(connection: HostConnection) -> bool:
            """True once nothing else is under way, also no start, and the engine has heard the last event."""
            busy = [each for each in live.hosts if each.is_busy or not each.ready]
            return [each.connection for each in busy] == [connection] and all(
                state.stage is Stage.ROLLING for each in busy for state in each.runs
            )

        for role in ("host", "quarantine"):
            host = live.host(role)
            file = workspace.root / f"held-{host.pid}"
            live.wait_for(lambda file=file: file.read_bytes()[0], "for code in C")  # type: ignore[misc]
            live.wait_for(partial(is_held, host), "for all others: the engine ends those that do not start")
            clock.advance(TIMEOUT_S + SILENCE_SLACK_S + 1)
            live.wait_for(lambda host=host: host not in [each.connection for each in live.hosts], "for its end")  # type: ignore[misc]
        live.wait()
    record = live.record(1)
    assert (record.boundary, record.attempt) == ("agent", 2)
    assert str(record.error) == "ended its process twice (it sent nothing for 610 s)"
    assert live.kinds() == ["passed", "error", "passed", "passed"]
    assert sorted(event["row"] for event in live.events("start")) == [0, 0, 1, 1, 2, 2, 3, 3]
