"""`osmosis_ai.rollout.server`: applications that take what code does to them, and serve nothing."""

from __future__ import annotations

import inspect
from typing import Any

__all__ = ["create_app", "create_rollout_server"]


class InertApp:
    """Takes any attribute and any call, as code makes them when it is imported. As a decorator, it changes nothing."""

    def __getattr__(self, name: str) -> InertApp:
        if name.startswith("__"):
            raise AttributeError(name)
        return InertApp()

    def __call__(self, *args: Any, **options: Any) -> Any:
        if len(args) == 1 and not options and inspect.isfunction(args[0]):
            return args[0]
        return InertApp()


def create_app(agent_loop: Any, *_args: Any, **_options: Any) -> Any:
    """Return an application without effect: an eval calls the agent loop itself."""
    return InertApp()


def create_rollout_server(*_args: Any, **_options: Any) -> Any:
    """Return an application without effect: an eval runs workflows itself."""
    return InertApp()
