"""`osmosis_ai.utils`: the decorators of reward functions."""

from __future__ import annotations

from pytest_osmosis.rewards.decorator import osmosis_reward

__all__ = ["osmosis_reward"]
