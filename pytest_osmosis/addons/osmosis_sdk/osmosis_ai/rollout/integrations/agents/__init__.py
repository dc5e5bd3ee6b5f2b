"""`osmosis_ai.rollout.integrations.agents`: a module per framework, which needs that framework."""

from __future__ import annotations

__all__: list[str] = []
