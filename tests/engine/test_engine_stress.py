"""Everything at once: a server that refuses, fails and cuts, agents that end or hold their process, killed hosts.

Whatever happens, the server's own count says that nothing was asked for beyond what each attempt allows, nothing that
is journalled again, nothing never, and never more at once than `batch_size`. `running` checks that each run was told
once, that the journal leads to the same records, and that no process and no thread is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from aiohttp import web

from pytest_osmosis.engine.line import PipeLine
from tests.engine.evaluating import Live, Workspace, running
from tests.servers import Behaviour, ChatServer, Exchange, cut_body, cut_connection, half_json, reply, slow, status

ROWS, N, BATCH, RETRIES = 30, 2, 6, 4

AGENT = """
async def rollout(ctx):
    if ctx.row_index == 7:
        await ctx.chat([{"role": "user", "content": f"run {ctx.row_index} {ctx.run_index}"}])
        os._exit(3)
    if ctx.row_index == 11:
        while True: pass
    reply = await ctx.chat([{"role": "user", "content": f"run {ctx.row_index} {ctx.run_index}"}])
    return [*ctx.prompt, reply.message]
"""
FAULTS: list[Behaviour] = [
    status(429, retry_after="0.05"),
    status(500),
    status(503),
    cut_connection(),
    cut_body(),
    half_json(),
]


class Weather:
    """Answers one request in three with a fault, drawn by a seed; counts what came, by run, and what was answered."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.asked: Counter[tuple[int, int]] = Counter()
        self.answered: Counter[tuple[int, int]] = Counter()
        self.in_flight = self.most_in_flight = 0

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        """One request. Those of a host that was killed are over once its connections are."""
        row, run = map(int, exchange.seen.body["messages"][-1]["content"].split()[1:])
        self.asked[row, run] += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            await asyncio.sleep(0.02)
        finally:
            self.in_flight -= 1
        if self._random.random() < 1 / 3:
            return await self._random.choice(FAULTS)(exchange)
        self.answered[row, run] += 1
        return await reply("42")(exchange)


def kill_one(live: Live, chance: random.Random) -> None:
    """End one of the hosts, whichever it is, and all that it started."""
    lines = [host.line for host in live.run.engine._hosts if host.ready]
    line = chance.choice([line for line in lines if isinstance(line, PipeLine)] or [None])
    if line is not None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(line.pid, signal.SIGKILL)


def starts(live: Live) -> Counter[tuple[int, int]]:
    """How often each run was begun, as the journal has it."""
    return Counter((event["row"], event["run"]) for event in live.events("start"))


def check_requests(live: Live, weather: Weather) -> None:
    """Nothing was asked for more often than its attempts allow, and nothing twice that was answered in time."""
    begun = starts(live)
    rolled = Counter((event["row"], event["run"], event["attempt"]) for event in live.events("rollout"))
    assert set(rolled.values()) <= {1}, "an attempt was rolled out twice"
    assert max(begun.values(), default=0) <= 2
    for key, times in weather.asked.items():
        assert times <= begun[key] * (1 + RETRIES), f"{key} was asked for {times} times in {begun[key]} attempts"
    for key, times in weather.answered.items():
        assert times <= begun[key], f"{key} was answered {times} times in {begun[key]} attempts"
    assert weather.most_in_flight <= BATCH


def tables(server: ChatServer, **evaluation: Any) -> dict[str, Mapping[str, Any]]:
    return {
        "model": {"base_url": server.base_url, "max_retries": RETRIES},
        "evaluation": {"batch_size": BATCH, "n": N, "agent_workflow_timeout_s": 3, **evaluation},
        "execution": {"hosts": 2},
    }


@pytest.mark.parametrize("seed", [1])
def test_faults_and_killed_hosts_cost_no_run_and_ask_for_nothing_twice(workspace: Workspace, seed: int) -> None:
    chance, weather = random.Random(seed), Weather(seed)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(ROWS)])
    workspace.agent(AGENT)
    with ChatServer(weather) as server:
        with running(workspace.config(server, **tables(server))) as live:
            for share in (0.2, 0.4, 0.6):
                live.wait_for(lambda share=share: len(live.told) >= share * ROWS * N, "for some runs")  # type: ignore[misc]
                kill_one(live, chance)
            live.wait()
        check_requests(live, weather)
    expected = {7: ("agent",), 11: ("timeout", "agent")}
    for record in live.results.records:
        boundaries = expected.get(record.run.row, (None, "provider"))
        assert record.boundary in boundaries, record
        assert record.status in ("finished", "failed")
    assert {record.run.row for record in live.results.records if record.boundary is None} >= set(range(ROWS)) - {7, 11}
    assert weather.asked.keys() == {(row, run) for row in range(ROWS) for run in range(N) if row != 11}


@pytest.mark.parametrize("kills", [False, True], ids=["stopped", "stopped and killed"])
def test_what_is_stopped_in_the_middle_is_pending_and_was_not_asked_for(workspace: Workspace, kills: bool) -> None:
    weather = Weather(3)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(ROWS)])
    workspace.agent(AGENT.replace("7", "-7").replace("11", "-11"))
    with ChatServer(weather) as server:
        with running(workspace.config(server, **tables(server))) as live:
            live.wait_for(lambda: len(live.told) >= 10, "for some runs")
            live.run.stop("interrupt", "enough")
            if kills:
                live.run.engine.kill()
            live.wait()
        check_requests(live, weather)
    begun = starts(live)
    for record in live.results.records:
        key = record.run.row, record.run.run
        assert record.status != "pending" or kills or not begun[key]
        assert (key in weather.asked) <= (key in begun)
    assert any(record.status == "pending" for record in live.results.records)


def test_a_server_that_never_answers_ends_with_the_deadlines(workspace: Workspace) -> None:
    workspace.agent(AGENT)
    with ChatServer(slow(1000, reply("42"))) as server:
        evaluation = {"agent_workflow_timeout_s": 1, "n": 1}
        with running(workspace.config(server, **tables(server, **evaluation))) as live:
            live.wait()
    assert {record.boundary for record in live.results.records} == {"provider"}
    assert len(server.requests) == len(live.run.selected)
