"""`osmosis_ai.utils`: the decorators of reward and rubric functions."""

from __future__ import annotations

from pytest_osmosis.judges.decorator import osmosis_rubric
from pytest_osmosis.rewards.decorator import osmosis_reward

__all__ = ["osmosis_reward", "osmosis_rubric"]
