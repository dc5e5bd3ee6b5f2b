"""`osmosis_ai.rollout.core.exceptions`: the errors of rollouts and of tools."""

from __future__ import annotations

from collections.abc import Sequence


class OsmosisRolloutError(Exception):
    """The base of all errors here."""


class OsmosisTransportError(OsmosisRolloutError):
    """A request did not reach its server."""


class _StatusError(OsmosisRolloutError):
    def __init__(self, message: str, status_code: int) -> None:
        super().__init__(message)
        self.status_code = status_code


class OsmosisServerError(_StatusError):
    """A server answered with a status from 500 on."""


class OsmosisValidationError(_StatusError):
    """A server refused a request, with a status from 400 to 499."""


class OsmosisTimeoutError(OsmosisRolloutError):
    """Something took too long."""


class AgentLoopNotFoundError(OsmosisRolloutError):
    """No agent loop is registered under a name."""

    def __init__(self, name: str, available: Sequence[str]) -> None:
        super().__init__(f"Agent loop '{name}' not found. Available: {list(available)}")
        self.name = name
        self.available = available


class ToolExecutionError(OsmosisRolloutError):
    """A tool failed."""

    def __init__(self, message: str, tool_call_id: str = "", tool_name: str = "") -> None:
        super().__init__(message)
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name


class ToolArgumentError(ToolExecutionError):
    """The arguments of a tool call cannot be read."""


__all__ = [
    "AgentLoopNotFoundError",
    "OsmosisRolloutError",
    "OsmosisServerError",
    "OsmosisTimeoutError",
    "OsmosisTransportError",
    "OsmosisValidationError",
    "ToolArgumentError",
    "ToolExecutionError",
]
