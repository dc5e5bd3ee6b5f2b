"""`osmosis_ai.rollout.core`: the package around agent loops and their data."""

from __future__ import annotations

__all__: list[str] = []
