"""Everything at once: a server that refuses, fails and cuts, agents that end their process, killed hosts.

Whatever happens, the server counts no request beyond what each attempt allows, none for a run that is in the journal
already, at least one for every run, and never more than `batch_size` at once. `running` checks that each run was
reported once, that the journal leads to the same records, and that no process and no thread is left.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal

import pytest

from pytest_osmosis.engine.host_connection import HostConnection
from pytest_osmosis.record.journal import replay
from tests.engine.evaluating import Live, Workspace, running
from tests.servers import ChatServer
from tests.weather import Weather, check_requests

ROWS, N, BATCH, RETRIES = 30, 2, 6, 4

AGENT = """
async def rollout(ctx):
    if ctx.row_index == 7:
        await ctx.chat([{"role": "user", "content": f"run {ctx.row_index} {ctx.run_index}"}])
        os._exit(3)
    reply = await ctx.chat([{"role": "user", "content": f"run {ctx.row_index} {ctx.run_index}"}])
    return [*ctx.prompt, reply.message]
"""


def kill_one(live: Live, chance: random.Random) -> None:
    """Kill one of the hosts and all that it started; not the quarantine, as its run would be blamed."""
    connections = [host.connection for host in live.hosts if host.ready and host.role != "quarantine"]
    connection = chance.choice([each for each in connections if isinstance(each, HostConnection)] or [None])
    if connection is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(connection.pid, signal.SIGKILL)


@pytest.mark.nightly
def test_faults_and_killed_hosts_lose_no_run_and_repeat_no_request(workspace: Workspace) -> None:
    chance, weather = random.Random(1), Weather(1)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(ROWS)])
    workspace.agent(AGENT)
    with ChatServer(weather) as server:
        model = {"base_url": server.base_url, "max_retries": RETRIES}
        evaluation = {"batch_size": BATCH, "n": N}
        with running(workspace.config(server, model=model, evaluation=evaluation, execution={"hosts": 2})) as live:
            for share in (0.2, 0.4, 0.6):
                live.wait_for(lambda share=share: len(live.told) >= share * ROWS * N, "for some runs")  # type: ignore[misc]
                kill_one(live, chance)
            live.wait()
        check_requests(replay(live.run.directory.journal), weather, batch_size=BATCH, retries=RETRIES)
    for record in live.results.records:
        boundaries = ("agent",) if record.run.row == 7 else (None, "provider")
        assert record.boundary in boundaries, record
        assert record.status in ("finished", "failed")
    assert {record.run.row for record in live.results.records if record.boundary is None} >= set(range(ROWS)) - {7}
    assert weather.asked.keys() == {(row, run) for row in range(ROWS) for run in range(N)}
