"""Plans out of reach: refused at once, in bounded memory."""

from __future__ import annotations

import pytest

from tests.hostile.workspaces import CONFIG, HostileWorkspace

pytestmark = pytest.mark.usefixtures("measured")


def test_a_plan_out_of_reach_is_refused_with_its_size(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=3, evaluation={"n": 10_000_000}, baseline={"model_path": "demo/arithmetic"})
    hostile.eval("y", rows=3, evaluation={"n": 2**62})

    result = hostile.run_process("--osmosis-config=configs/eval")

    assert result.ret == 4
    fix = "an eval has at most 10,000,000; lower n (--osmosis-n) or select fewer rows (--osmosis-limit)"
    size = "3 rows x 10,000,000 runs x 2 models = 60,000,000 rollouts"
    assert f"configs/eval/x.toml: {size}; {fix}" in result.stderr.str()
    assert f"= {3 * 2**62:,} rollouts; {fix}" in result.stderr.str()


def test_more_hosts_and_slots_than_runs_take_no_more_than_the_runs_need(hostile: HostileWorkspace) -> None:
    hostile.eval(rows=2, evaluation={"batch_size": 2**62}, execution={"hosts": 512})

    result = hostile.run_process(CONFIG)

    result.assert_outcomes(passed=2)
    assert hostile.run_process(CONFIG, "--osmosis-set=execution.hosts=513").ret == 4
