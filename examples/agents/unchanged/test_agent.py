"""The agent asks its tool. In this folder: pytest test_agent.py --osmosis-source=model"""

from __future__ import annotations

import pytest

from pytest_osmosis import Rollout


@pytest.mark.osmosis_eval("configs/eval/products.toml", limit=2)
def test_the_tool_is_called_once(rollout: Rollout) -> None:
    calls = [call for message in rollout.messages for call in message.get("tool_calls") or ()]
    assert [call["function"]["name"] for call in calls] == ["multiply"]
