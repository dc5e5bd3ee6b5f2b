"""[limits] on spending: no further run begins, and results are kept. Provider limits hold, and are reported."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.plugin.workspaces import CONFIG, Workspace


@pytest.mark.slow
def test_an_eval_stops_when_its_tokens_are_spent_and_a_gate_may_still_decide(workspace: Workspace) -> None:
    workspace.eval(rows=40, limits={"max_tokens": 30})
    result = workspace.run(CONFIG, "-rsE", exits=9)
    result.stdout.fnmatch_lines(["ERROR configs/eval/x.toml::x?limit max_tokens?*"])
    result.stdout.fnmatch_lines(
        ["SKIPPED * configs/eval/x.toml:1: *max_tokens = 30 has no room for another run: 24 tokens used*"]
    )
    results = workspace.results()
    assert results["status"] == "stopped"
    assert 2 <= results["summary"]["total_runs"] < 40
    assert results["summary"]["total_runs"] == results["summary"]["finished"]  # what was in flight was finished
    workspace.run(CONFIG, "--osmosis-inline", exits=9)
    assert 2 <= workspace.results()["summary"]["total_runs"] < 40
    gated = workspace.run(CONFIG, "--osmosis-gate=pass_rate >= 0.01", exits=0)
    gated.stdout.fnmatch_lines(["gate pass_rate >= 0.01: HOLDS: *not measured and counted as not passed*"])


def test_bounds_of_each_rollout_are_shown_kept_and_told_apart(workspace: Workspace) -> None:
    workspace.write(
        "agent.py", "async def rollout(ctx):\n    while True:\n        await ctx.chat(ctx.prompt, tools=[])\n"
    )
    rates = {"requests_per_minute": 1_000_000, "tokens_per_minute": 1_000_000}
    bounds = {"rollout": {"tokens": 5000}}
    workspace.eval(rows=2, agent={"agent": "agent:rollout"}, limits=bounds, execution=rates)
    result = workspace.run(CONFIG, "--osmosis-max-turns=3", "--osmosis-set=limits.rollout.cost_usd=1", exits=1)
    result.stdout.fnmatch_lines("""
          limit: at most 3 turns, 5,000 tokens, $1.00 a rollout
          limit: 1,000,000 requests a minute
          limit: 1,000,000 tokens a minute
        2 runs counted as failed: the rollout asked the model 4 times: ?agent? max_turns = 3 (boundary agent), *
    """)


def test_provider_limits_hold_inline_too(workspace: Workspace) -> None:
    """The second request waits for about 0.8 s, less the time of the first rollout, which is long on a busy machine."""
    workspace.eval(rows=2, execution={"requests_per_minute": 60})

    workspace.run(CONFIG, "--osmosis-inline", exits=0)

    times = [datetime.fromisoformat(event["at"]) for kind in ("start", "rollout") for event in workspace.events(kind)]
    assert (max(times) - min(times)).total_seconds() > 0.7
