"""Hosts rarely collect cyclic garbage, as imports and rollouts leave little; thresholds set by user code hold."""

from __future__ import annotations

import pytest

from pytest_osmosis.host.main import COLLECT_AFTER, COLLECT_AFTER_LOADING
from tests.engine.evaluating import Workspace, evaluated

pytestmark = pytest.mark.slow

TELLS = """
import gc
WHILE_LOADING, IS_ENABLED = gc.get_threshold()[0], gc.isenabled()
{}

async def rollout(ctx):
    said = f"{{WHILE_LOADING}} {{gc.get_threshold()[0]}} {{IS_ENABLED}} {{gc.isenabled()}}"
    return [*ctx.prompt, {{"role": "assistant", "content": said}}]
"""


@pytest.mark.parametrize(("set_by_user", "later"), [("", COLLECT_AFTER), ("gc.set_threshold(1234)", 1234)])
def test_garbage_is_collected_rarely_unless_user_code_sets_a_threshold(
    workspace: Workspace, set_by_user: str, later: int
) -> None:
    workspace.agent(TELLS.format(set_by_user))
    live = evaluated(workspace.config(None))
    said = {event["messages"][-1]["content"] for event in live.events("rollout")}
    assert said == {f"{COLLECT_AFTER_LOADING} {later} True True"}
