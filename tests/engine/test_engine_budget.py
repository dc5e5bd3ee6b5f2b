"""Bounds on tokens and dollars, and failures that every further run would meet: no run begins in vain."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.engine.budget import Budget
from pytest_osmosis.engine.job import Bounds
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.results.results import n_cost_unknown
from tests.engine.evaluating import Live, Workspace, evaluated
from tests.engine.stepped import Make, ScriptedHost, SteppedEngine
from tests.servers import QUOTA, Behaviour, ChatServer, reply, status, together
from tests.unit.made import failed

pytestmark = pytest.mark.slow

PRICES = {"served": {"input": 1.0, "output": 0.0}}
"""A dollar for a million input tokens."""
TWO_REQUESTS = """
async def rollout(ctx):
    for _ in range(2):
        reply = await ctx.chat(ctx.prompt)
    return [*ctx.prompt, reply.message]
"""


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


def test_a_reply_without_usage_leaves_the_cost_of_its_rollout_unknown(workspace: Workspace) -> None:
    workspace.agent(TWO_REQUESTS)
    with ChatServer(reply("42"), reply("42", usage=None), reply("42"), reply("42")) as server:
        tables: dict[str, Any] = {"prices": PRICES, "evaluation": {"batch_size": 1}}
        live = evaluated(workspace.config(server, **tables))
    assert live.record(0).usage is None
    assert live.record(0).tokens is None
    assert live.record(1).tokens == 20
    assert n_cost_unknown(live.results) == 1
    assert live.results.cost_usd == pytest.approx(3 * 14e-6)  # three rows, two requests each, seven tokens each


def test_a_run_that_broke_after_an_answer_without_usage_did_use_something() -> None:
    """One that broke before its first answer probably used nothing."""
    budget, broken = Budget(Bounds(math.inf, "", max_tokens=1000)), failed("agent")
    assert budget.rolled_out(broken) is None
    stop = budget.rolled_out(broken._replace(finish_reason="stop"))
    assert stop is not None
    assert stop.text.startswith("[limits] max_tokens cannot be kept: the server does not report token usage")


def in_groups(make: Make, max_tokens: int, n_rows: int = 2) -> tuple[SteppedEngine, ScriptedHost]:
    """Two runs of each row, which a judge scores one by one before "whole" scores them together."""
    bounds = Bounds(math.inf, "some", max_tokens=max_tokens, judged=True)
    scorers = {"judge": False, "whole": False}
    stepped = make(2 * n_rows, scorers=scorers, grouped=["whole"], n=2, bounds=bounds)
    stepped.runs = [RunId(row, index) for row in range(n_rows) for index in range(2)]
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


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path, rows=8)


def stopped_with(live: Live, text: str) -> bool:
    """Check that the eval says why it stopped, and that every run that never ran says so too."""
    assert live.results.stopped is not None
    pending = [record for record in live.results.records if record.status == "pending"]
    assert all(record.skip_reason == live.results.stopped for record in pending)
    return text in live.results.stopped


def test_a_404_at_the_probe_says_where_it_asked_and_how_to_leave_the_probe_out(workspace: Workspace) -> None:
    with ChatServer(status(404)) as server:
        live = evaluated(workspace.config(server, model={"base_url": server.url}), probe=True)
        assert len(server.requests) == 1
    assert live.kinds() == ["skipped"] * 8
    assert {record.status for record in live.results.records} == {"pending"}
    assert stopped_with(
        live, f"the test request failed: the server answered 404 Not Found at {server.url}/chat/completions"
    )
    assert stopped_with(live, f'[model] base_url = "{server.url}/v1"')
    assert stopped_with(live, "--osmosis-no-probe")


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
