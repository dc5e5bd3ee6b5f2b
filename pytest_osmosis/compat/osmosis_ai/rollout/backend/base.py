"""`osmosis_ai.rollout.backend.base`: the base class of backends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

__all__ = ["ExecutionBackend"]


class ExecutionBackend(ABC):
    """Executes rollouts for a server, which pytest-osmosis does itself."""

    @abstractmethod
    async def execute(self, request: Any) -> Any:
        """Return the outcome of a request."""
