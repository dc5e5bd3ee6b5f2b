"""`osmosis_ai.rollout.registry`: agent loops by their names."""

from __future__ import annotations

from pytest_osmosis.compat.osmosis_ai.rollout.core.base import RolloutAgentLoop
from pytest_osmosis.compat.osmosis_ai.rollout.core.exceptions import AgentLoopNotFoundError


class AgentLoopRegistry:
    """Agent loops by their names."""

    def __init__(self) -> None:
        self._loops: dict[str, RolloutAgentLoop] = {}

    def register(self, loop: RolloutAgentLoop) -> None:
        """Add a loop. Raises `ValueError` if its name is taken."""
        if self._loops.setdefault(loop.name, loop) is not loop:
            raise ValueError(f"Agent loop '{loop.name}' is already registered; use another name")

    def unregister(self, name: str) -> bool:
        """Remove a loop, and return True if there was one."""
        return self._loops.pop(name, None) is not None

    def get(self, name: str) -> RolloutAgentLoop | None:
        return self._loops.get(name)

    def list_names(self) -> list[str]:
        return list(self._loops)

    def clear(self) -> None:
        self._loops.clear()


_REGISTRY = AgentLoopRegistry()


def register_agent_loop(loop: RolloutAgentLoop) -> None:
    _REGISTRY.register(loop)


def unregister_agent_loop(name: str) -> bool:
    return _REGISTRY.unregister(name)


def get_agent_loop(name: str) -> RolloutAgentLoop:
    """Return a loop. Raises `AgentLoopNotFoundError`."""
    loop = _REGISTRY.get(name)
    if loop is None:
        raise AgentLoopNotFoundError(name, _REGISTRY.list_names())
    return loop


def list_agent_loops() -> list[str]:
    return _REGISTRY.list_names()


__all__ = [
    "AgentLoopRegistry",
    "get_agent_loop",
    "list_agent_loops",
    "register_agent_loop",
    "unregister_agent_loop",
]
