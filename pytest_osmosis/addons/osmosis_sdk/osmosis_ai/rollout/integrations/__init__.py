"""`osmosis_ai.rollout.integrations`: agent frameworks, whose models ask the rollout's endpoint."""

from __future__ import annotations

__all__: list[str] = []
