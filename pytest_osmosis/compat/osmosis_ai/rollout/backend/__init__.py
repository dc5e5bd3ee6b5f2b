"""`osmosis_ai.rollout.backend`: inert objects, which say what an entrypoint would serve."""

from __future__ import annotations

from pytest_osmosis.compat.osmosis_ai.rollout.backend.base import ExecutionBackend
from pytest_osmosis.compat.osmosis_ai.rollout.backend.local import LocalBackend

__all__ = ["ExecutionBackend", "LocalBackend"]
