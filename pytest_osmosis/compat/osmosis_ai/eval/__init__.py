"""`osmosis_ai.eval`: the package around `rubric`."""

from __future__ import annotations

__all__: list[str] = []
