"""`osmosis_ai.rollout.backend`: the package around `local`."""

from __future__ import annotations

__all__: list[str] = []
