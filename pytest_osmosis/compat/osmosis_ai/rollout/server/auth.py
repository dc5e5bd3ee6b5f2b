"""`osmosis_ai.rollout.server.auth`: an inert object, which older entrypoints pass to their server."""

from __future__ import annotations

from typing import Any

__all__ = ["ControllerAuth"]


class ControllerAuth:
    """Keeps its arguments."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        self.arguments = arguments
        self.settings = settings
