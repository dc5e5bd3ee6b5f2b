"""`osmosis_ai.rollout.backend.local`: the backend that runs workflows in its own process."""

from __future__ import annotations

from pytest_osmosis.compat.osmosis_ai.rollout.backend.local.backend import LocalBackend

__all__ = ["LocalBackend"]
