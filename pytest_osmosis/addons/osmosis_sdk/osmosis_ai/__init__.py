"""`osmosis_ai` itself: the decorator of reward functions, of 0.2."""

from __future__ import annotations

from pytest_osmosis.addons.lab.decorator import osmosis_reward

__all__ = ["osmosis_reward"]
