"""requests_per_minute and tokens_per_minute: when requests are permitted and sent, and which clocks stand still.

A slow machine may delay requests on their way, so those that arrive keep to a limit only as their permits do.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Sequence

import pytest
from aiohttp import web

from pytest_osmosis.engine.limits import BURST_S, WINDOW_S, Charge, Rate
from pytest_osmosis.engine.recorder import Recorder
from tests.engine.evaluating import Workspace, evaluated
from tests.servers import Behaviour, ChatServer, Exchange, reply, status

TWICE = """
async def rollout(ctx):
    for _ in range(2):
        reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""


class Log:
    """The arrival times of requests. It refuses one in four."""

    def __init__(self, *, refuses: bool = False, answer: Behaviour | None = None) -> None:
        self.arrived: list[float] = []
        self._refuses = refuses
        self._answer = answer or reply("42")

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        self.arrived.append(time.monotonic())
        if self._refuses and len(self.arrived) % 4 == 0:
            return await status(500)(exchange)
        return await self._answer(exchange)


@pytest.fixture
def charges(monkeypatch: pytest.MonkeyPatch) -> list[Charge]:
    """All that is charged to limits, each with the time of its permit."""
    charges: list[Charge] = []
    take = Rate.take

    def taken(self: Rate, now: float, amount: float) -> Charge:
        charges.append(take(self, now, amount))
        return charges[-1]

    monkeypatch.setattr(Rate, "take", taken)
    return charges


def waits_after_permits(log: Log, permitted: Sequence[float]) -> list[float]:
    """Return how long after its permit each request arrived. Each needs one."""
    assert len(log.arrived) == len(permitted)
    return [arrived - at for arrived, at in zip(sorted(log.arrived), sorted(permitted), strict=True)]


def most_within(times: Sequence[float], seconds: float) -> int:
    """Return the most times within any span of that many seconds."""
    return max(sum(begin <= at < begin + seconds for at in times) for begin in times)


@pytest.mark.clock
@pytest.mark.parametrize("hosts", [1, 2])
def test_requests_of_all_hosts_and_their_retries_keep_to_the_limit(
    workspace: Workspace, charges: list[Charge], hosts: int
) -> None:
    log, per_minute = Log(refuses=True), 1200
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(12)])
    workspace.agent(TWICE)
    with ChatServer(log) as server:
        execution = {"hosts": hosts, "requests_per_minute": per_minute}
        live = evaluated(workspace.config(server, evaluation={"batch_size": 8}, execution=execution))
    assert live.kinds() == ["passed"] * 12
    assert len(log.arrived) > 24
    permitted = [charge.at for charge in charges]
    for seconds in (0.5, 1.0):
        allowed = 1 + (seconds + BURST_S) * per_minute / WINDOW_S
        assert most_within(permitted, seconds) <= allowed
    waits = waits_after_permits(log, permitted)
    assert min(waits) >= 0
    assert statistics.quantiles(waits)[0] < 0.25, "a permit is for now"
    throttling = live.results.to_json()["summary"]["throttling"]
    assert throttling["pauses"] == 0
    assert throttling["held_s"]["requests_per_minute"] < 60


@pytest.mark.clock
def test_the_wait_for_a_permit_does_not_count_for_any_deadline(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded model answers at once, so the wait is longer than the deadline, and all else far shorter."""
    seen = set()
    settle = Recorder.settle

    def settled(self: Recorder, **counts: int | str | None) -> None:
        settle(self, **counts)
        seen.add((self.progress.held > 1, self.progress.held_by))

    monkeypatch.setattr(Recorder, "settle", settled)
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(8)])
    workspace.agent(
        """
        async def rollout(ctx):
            await ctx.chat(ctx.prompt)
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    evaluation = {"batch_size": 8, "agent_workflow_timeout_s": 1}
    live = evaluated(workspace.config(None, evaluation=evaluation, execution={"requests_per_minute": 200}))
    assert live.kinds() == ["passed"] * 8
    assert (True, "requests_per_minute") in seen
    assert live.results.throttling.held_s["requests_per_minute"] > 1


def test_tokens_count_as_the_server_reports_them(workspace: Workspace, charges: list[Charge]) -> None:
    """Estimates are far below the 100 tokens that each answer takes, which are worth about a second."""
    log = Log(answer=reply("42", usage={"prompt_tokens": 60, "completion_tokens": 40, "total_tokens": 100}))
    with ChatServer(log) as server:
        tables = {"sampling": {"max_tokens": 1}, "execution": {"tokens_per_minute": 6000}}
        live = evaluated(workspace.config(server, evaluation={"batch_size": 1}, **tables))
    assert live.kinds() == ["passed"] * 4
    permitted = [charge.at for charge in charges]
    assert min(waits_after_permits(log, permitted)) >= 0
    steps = [after - before for before, after in itertools.pairwise(permitted)]
    assert all(step > 100 * WINDOW_S / 6000 - 2 * BURST_S for step in steps)
    assert permitted[-1] - permitted[0] > 3 * 100 * WINDOW_S / 6000 - 2 * BURST_S


def test_a_request_cancelled_while_it_waits_for_its_permit_does_not_count(
    workspace: Workspace, charges: list[Charge]
) -> None:
    log = Log()
    workspace.agent("""
    async def rollout(ctx):
        for _ in range(3):
            try:
                await asyncio.wait_for(ctx.chat(ctx.prompt), 0.05)
            except TimeoutError:
                pass
        reply = await ctx.chat(ctx.prompt)
        return [*ctx.prompt, reply.message]
    """)
    with ChatServer(log) as server:
        live = evaluated(workspace.config(server, execution={"requests_per_minute": 120}))
    assert live.kinds() == ["passed"] * 4
    used = [charge.at for charge in charges if charge.amount]
    assert most_within(used, 1.0) <= 1 + (1.0 + 2 * BURST_S) * 2
    assert len(log.arrived) <= len(used)
    assert live.actor.permits._granted == {}
    assert not live.actor.permits._waiting


@pytest.mark.clock
@pytest.mark.slow
def test_code_that_runs_while_a_request_waits_for_its_permit_reaches_its_deadline(workspace: Workspace) -> None:
    """Its clock stands still during the wait. But permits come, and code that cancels requests for ever uses time."""
    workspace.agent(
        """
        import contextlib

        async def rollout(ctx):
            if ctx.row_index % 2:
                await asyncio.gather(ctx.chat(ctx.prompt), asyncio.sleep(1000))
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ctx.chat(ctx.prompt), 0.001)
        """
    )
    evaluation = {"agent_workflow_timeout_s": 1}
    live = evaluated(workspace.config(None, evaluation=evaluation, execution={"requests_per_minute": 60}))
    assert live.kinds() == ["error"] * 4
    assert {live.record(row).boundary for row in (1, 3)} == {"timeout"}


def test_requests_of_a_dead_host_no_longer_wait_for_permits(workspace: Workspace) -> None:
    log = Log()
    workspace.agent("""
    async def rollout(ctx):
        if ctx.row_index == 3:
            os._exit(1)
        reply = await ctx.chat(ctx.prompt)
        return [*ctx.prompt, reply.message]
    """)
    with ChatServer(log) as server:
        live = evaluated(workspace.config(server, execution={"requests_per_minute": 150}))
    assert live.kinds() == ["passed"] * 3 + ["error"]
    assert live.run.engine.progress.held == 0
