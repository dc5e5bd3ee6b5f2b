"""`osmosis_ai.rollout.core.exceptions`: the error of tools whose arguments cannot be read."""

from __future__ import annotations

__all__ = ["ToolArgumentError"]


class ToolArgumentError(Exception):
    """The arguments of a tool call cannot be read."""

    def __init__(self, message: str, tool_call_id: str = "", tool_name: str = "") -> None:
        super().__init__(message)
        self.tool_call_id = tool_call_id
        self.tool_name = tool_name
