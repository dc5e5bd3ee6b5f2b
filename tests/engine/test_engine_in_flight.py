"""Bounds on rollouts, scorings and requests in flight, per minute, and on tokens and dollars; and failures of all runs.

A slow machine may delay requests on their way, so those that arrive keep to a limit only as their permits do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec.structs import replace

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.engine.permits import BURST_S, WINDOW_S, Charge, Rate
from pytest_osmosis.errors import CodeError
from pytest_osmosis.record.run_id import RunId
from tests.clocks import ThreadClock
from tests.engine.evaluating import Live, Workspace, asked_rows, evaluated, running
from tests.engine.stepped import Make, ScriptedHost, SteppedEngine
from tests.servers import QUOTA, Behaviour, ChatServer, Exchange, held, reply, status, together
from tests.unit.made import failed

pytestmark = pytest.mark.slow

GATHERING = """
async def rollout(ctx):
    replies = await asyncio.gather(*(ctx.chat(ctx.prompt) for _ in range(3)))
    return [*ctx.prompt, replies[0].message]
"""


@pytest.mark.parametrize(("batch_size", "agent", "n_asks"), [(1, None, 1), (3, None, 1), (4, GATHERING, 3)])
def test_the_server_sees_batch_size_requests_at_once_and_never_more(
    workspace: Workspace, batch_size: int, agent: str | None, n_asks: int
) -> None:
    workspace.rows([{"user_prompt": f"row {index}", "ground_truth": "42"} for index in range(8)])
    if agent is not None:
        workspace.agent(agent)
    with ChatServer(held(reply("42"))) as server:
        with running(workspace.config(server, evaluation={"batch_size": batch_size})) as live:
            server.wait_for(lambda server: server.in_flight == batch_size)
            live.wait_for(lambda: live.run.engine.progress.in_flight == batch_size)
            server.release()
            live.wait()
        assert server.max_in_flight == batch_size
        assert asked_rows(server) == dict.fromkeys(range(8), n_asks)
    assert live.kinds() == ["passed"] * 8


class Log:
    """The number of requests that arrived. It refuses one in four."""

    arrived = 0

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        self.arrived += 1
        return await (reply("42") if self.arrived % 4 else status(500))(exchange)


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


def is_settled(live: Live, clock: ThreadClock, log: Log, charges: Sequence[Charge]) -> bool:
    """Return True if the engine has looked, all that it permitted has arrived, and another request waits, or none will.

    The engine tells its progress only after it has sent permits, so that may still be of the time before.
    """
    permits = live.loop.permits
    waits = permits._looked_at == clock.now() and (permits.held_by or len(live.told) == len(live.run.selected.runs))
    return bool(waits) and log.arrived == len(charges)


@pytest.mark.parametrize("hosts", [1, 2])
def test_requests_of_all_hosts_and_their_retries_keep_to_the_limit(
    workspace: Workspace, charges: list[Charge], hosts: int
) -> None:
    log, clock = Log(), ThreadClock()
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(12)])
    workspace.agent("""
        async def rollout(ctx):
            for _ in range(2):
                reply = await ctx.chat(ctx.prompt)
            return [*ctx.prompt, reply.message]
    """)
    with ChatServer(log) as server:
        execution = {"hosts": hosts, "requests_per_minute": 60}
        config = workspace.config(server, evaluation={"batch_size": 8}, execution=execution)
        with running(config, clock=clock) as live:
            engine = live.run.engine
            live.wait_for(lambda: engine.progress.held > 1, "for requests held")
            assert engine.progress.held_by == "requests_per_minute"
            begun = clock.now()
            while len(live.told) < 12:
                clock.advance(WINDOW_S / 60)
                live.wait_for(lambda: is_settled(live, clock, log, charges), "for one that waits")
                assert log.arrived <= 1 + (clock.now() - begun + BURST_S) * 60 / WINDOW_S
    assert live.kinds() == ["passed"] * 12
    assert log.arrived == len(charges) > 24
    throttling = live.results.to_json()["summary"]["throttling"]
    assert throttling["pauses"] == 0
    assert throttling["held_s"]["requests_per_minute"] == pytest.approx(clock.now() - begun, abs=0.001)


def test_code_that_cancels_requests_for_ever_while_they_wait_for_permits_ends(workspace: Workspace) -> None:
    """Its clock stands still during a wait. But permits come, and between the waits it uses time."""
    workspace.agent(
        """
        import contextlib

        async def rollout(ctx):
            while True:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(ctx.chat(ctx.prompt), 0.001)
        """
    )
    evaluation = {"agent_workflow_timeout_s": 1}
    live = evaluated(workspace.config(None, evaluation=evaluation, execution={"requests_per_minute": 60}))
    assert live.kinds() == ["error"] * 4


NOTE = """
import asyncio
import time

def note(text):
    with open("log.txt", "a") as log:
        log.write(text + " ")
"""
CODE = f"""{NOTE}
from PACKAGE import AgentWorkflow, AgentWorkflowConfig, ConcurrencyConfig, Grader, GraderConfig

workflow_config = AgentWorkflowConfig(name="flow", concurrency=ConcurrencyConfig(max_concurrent=ROLLOUTS))
grader_config = GraderConfig(name="judge", concurrency=ConcurrencyConfig(max_concurrent=SCORINGS))

class Flow(AgentWorkflow):
    async def run(self, ctx):
        note("rollout+")
        await asyncio.sleep(0.02)
        note("rollout-")
        return [*ctx.prompt, {{"role": "assistant", "content": "42"}}]

class Judge(Grader):
    async def grade(self, ctx):
        note("scoring+")
        await asyncio.sleep(0.02)
        note("scoring-")
        ctx.set_reward(1.0)
"""


def limited(package: str, rollouts: int | None, scorings: int | None) -> str:
    return CODE.replace("PACKAGE", package).replace("ROLLOUTS", str(rollouts)).replace("SCORINGS", str(scorings))


def most_at_once(log: str, kind: str) -> int:
    now = most = 0
    for step in log.split():
        now += (step == f"{kind}+") - (step == f"{kind}-")
        most = max(most, now)
    return most


@pytest.mark.parametrize(
    ("package", "rollouts", "scorings", "hosts"),
    [("pytest_osmosis", 1, None, 2), ("pytest_osmosis", None, 2, 1), ("osmosis_ai.rollout", 3, 1, 2)],
)
def test_a_config_limits_all_hosts_together(
    tmp_path: Path, package: str, rollouts: int | None, scorings: int | None, hosts: int
) -> None:
    workspace = Workspace(tmp_path, rows=12)
    workspace.write("rollouts/mine/main.py", limited(package, rollouts, scorings))
    live = evaluated(
        workspace.config(
            None,
            experiment={"rollout": "mine", "entrypoint": "main.py"},
            evaluation={"batch_size": 6},
            execution={"hosts": hosts},
            scoring={"eval_fns": []},
        )
    )
    assert live.kinds() == ["passed"] * 12
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert most_at_once(log, "rollout") <= (rollouts or 6)
    assert most_at_once(log, "scoring") <= (scorings or 6)
    said = [text for text in live.loop.notices.texts if "the workflow's config allows" in text]
    assert bool(said) == (rollouts is not None)


def test_a_limit_that_is_no_number_is_refused(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    workspace.write("rollouts/mine/main.py", limited("pytest_osmosis", 0, None))
    with pytest.raises(CodeError, match=r"max_concurrent must be a whole number from 1 on, or None, got 0"):
        evaluated(workspace.config(None, experiment={"rollout": "mine", "entrypoint": "main.py"}))


SCORED = f"""{NOTE}
async def waits(solution_str):
    note("scoring+")
    while open("log.txt").read().count("scoring+") < MEETING:
        await asyncio.sleep(0.01)
    note("scoring-")
    return 1.0

def blocks(solution_str):
    note("scoring+")
    time.sleep(0.02)
    note("scoring-")
    return 1.0
"""


@pytest.mark.parametrize(("generation", "scoring", "interleaved"), [(2, 1, True), (6, 3, True), (1, 6, False)])
def test_rollouts_and_scorings_have_limits_of_their_own(
    tmp_path: Path, generation: int, scoring: int, interleaved: bool
) -> None:
    """They hold for all processes together, those of functions that block included."""
    workspace = Workspace(tmp_path, rows=12)
    workspace.write("rewards.py", f"{SCORED}\nMEETING = {0 if interleaved else 2}\n")
    workspace.agent(
        """
        from rewards import note

        async def rollout(ctx):
            note("rollout+")
            await asyncio.sleep(0.02)
            note("rollout-")
            return [*ctx.prompt, {"role": "assistant", "content": "42"}]
        """
    )
    execution = {"hosts": 2, "max_concurrent_generation": generation, "max_concurrent_scoring": scoring}
    live = evaluated(
        workspace.config(
            None,
            execution=execution | ({} if interleaved else {"interleave_scoring": False}),
            scoring={"eval_fns": ["rewards:waits", "rewards:blocks"]},
        )
    )
    assert live.kinds() == ["passed"] * 12
    log = (tmp_path / "log.txt").read_text(encoding="utf-8")
    assert most_at_once(log, "rollout") <= generation
    assert most_at_once(log, "scoring") <= scoring
    if not interleaved:
        assert most_at_once(log, "scoring") > 1, "with one rollout in flight, several are scored at once"
        assert log.rindex("rollout-") < log.index("scoring+")


PRICES = {"served": {"input": 1.0, "output": 0.0}}
"""A dollar for a million input tokens."""


@pytest.mark.parametrize("hosts", [1, 2])
def test_runs_of_equal_cost_never_exceed_the_bound_and_use_it_up(workspace: Workspace, hosts: int) -> None:
    workspace.rows([{"user_prompt": f"row {row}", "ground_truth": "42"} for row in range(200)])
    with ChatServer(reply("42", usage={"prompt_tokens": 1000, "completion_tokens": 0, "total_tokens": 1000})) as server:
        limits = {"max_cost_usd": 0.0505, "max_errors": 1000}
        tables: dict[str, Any] = {"limits": limits, "prices": PRICES, "execution": {"hosts": hosts}}
        live = evaluated(workspace.config(server, evaluation={"batch_size": 16}, **tables))

    assert live.results.cost_usd == pytest.approx(0.050)
    assert len(server.requests) == 50
    text = "[limits] max_cost_usd = 0.0505 has no room for another run: $0.050 spent, about $0.0010 a run"
    assert live.stop == ("max_cost_usd", text)


def test_a_run_that_broke_after_an_answer_without_usage_did_use_something() -> None:
    """One that broke before its first answer probably used nothing."""
    budget, broken = Budget(Bounds(math.inf, "", max_tokens=1000)), failed("agent")
    assert budget.rolled_out(broken) is None
    stop = budget.rolled_out(replace(broken, finish_reason="stop"))
    assert stop is not None
    assert stop.text.startswith("[limits] max_tokens cannot be kept: the server does not report token usage")


def in_groups(make: Make, max_tokens: int) -> tuple[SteppedEngine, ScriptedHost]:
    """Two runs of each row, which a judge scores one by one before "whole" scores them together."""
    bounds = Bounds(math.inf, "some", max_tokens=max_tokens, judged=True)
    scorers = {"judge": False, "whole": False}
    stepped = make(4, scorers=scorers, grouped=["whole"], n=2, bounds=bounds)
    stepped.runs = [RunId(row, index) for row in range(2) for index in range(2)]
    return stepped, stepped.begin().host("host")


def judges(stepped: SteppedEngine, run: RunId) -> None:
    """Let the host roll a run out, which uses 7 tokens, and the judge score it, which uses none."""
    host = stepped.host("host")
    host.rolls_out(run)
    stepped.after(host.scores, run, name="judge")


def test_a_run_that_waits_for_its_group_holds_no_other_back(make: Make) -> None:
    stepped, host = in_groups(make, 1000)
    assert host.runs() == stepped.runs[:1], "no cost is known"
    judges(stepped, stepped.runs[0])
    assert host.runs() == stepped.runs[:2]


def test_a_bound_without_room_for_the_rest_of_a_group_stops_the_eval(make: Make) -> None:
    stepped, host = in_groups(make, 25)
    for run in stepped.runs[:2]:
        judges(stepped, run)
    stepped.after(host.scores, *stepped.runs[:2], name="whole")
    judges(stepped, stepped.runs[2])

    assert host.runs() == stepped.runs[:3]
    assert stepped.engine.stopped is not None
    assert stepped.engine.stopped.reason == "max_tokens"


def test_a_404_at_the_probe_says_where_it_asked_and_how_to_leave_the_probe_out(workspace: Workspace) -> None:
    with ChatServer(status(404)) as server:
        live = evaluated(workspace.config(server, model={"base_url": server.url}), probe=True)
        assert len(server.requests) == 1
    assert live.kinds() == ["skipped"] * 4
    assert {(record.status, record.skip_reason) for record in live.results.records} == {
        ("pending", live.results.stopped)
    }
    text = f"the test request failed: the server answered 404 Not Found at {server.url}/chat/completions"
    for said in (text, f'[model] base_url = "{server.url}/v1"', "--osmosis-no-probe"):
        assert said in str(live.results.stopped)


@pytest.mark.parametrize("answer", [status(401), status(429, QUOTA), status(402)], ids=["401", "quota", "402"])
def test_nothing_is_sent_after_the_first_answer_that_denies_every_request(
    workspace: Workspace, answer: Behaviour
) -> None:
    workspace.rows([{"user_prompt": f"row {index}"} for index in range(80)])
    with ChatServer(together(16, answer)) as server:
        live = evaluated(workspace.config(server, evaluation={"batch_size": 16}))
        assert len(server.requests) == 16
    assert live.kinds().count("error") == 16
    assert live.kinds().count("skipped") == 64
    assert live.stop.reason == "systemic"
