"""Each rollout asks its tool. In this folder: pytest test_rollouts.py --osmosis-source=model"""

from __future__ import annotations

import pytest

from pytest_osmosis import Rollout


def check_tool(rollout: Rollout) -> None:
    assert rollout.scores["reward"] == 1.0
    assert str(rollout.messages).count("'multiply'") == 1


@pytest.mark.osmosis_eval("configs/eval/openai.toml", limit=2)
def test_the_agent_of_openai_calls_its_tool_once(rollout: Rollout) -> None:
    check_tool(rollout)


@pytest.mark.osmosis_eval("configs/eval/strands.toml", limit=2)
def test_the_agent_of_strands_calls_its_tool_once(rollout: Rollout) -> None:
    check_tool(rollout)
