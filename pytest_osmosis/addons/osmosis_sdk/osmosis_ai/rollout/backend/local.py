"""`osmosis_ai.rollout.backend.local`: an inert object that names a workflow, a Grader and their configs."""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["LocalBackend"]


class LocalBackend:
    """Names what an entrypoint serves. Each argument may be the object or "module:attribute"."""

    def __init__(
        self, *, workflow: Any, workflow_config: Any = None, grader: Any = None, grader_config: Any = None
    ) -> None:
        self.workflow_cls = _resolved(workflow)
        self.workflow_config = _resolved(workflow_config)
        self.grader_cls = _resolved(grader)
        self.grader_config = _resolved(grader_config)

    async def execute(self, request: Any) -> Any:
        raise RuntimeError("pytest-osmosis stands in for osmosis_ai and runs workflows itself, without a backend")


def _resolved(named: Any) -> Any:
    """Return an object, or the one that "module:attribute" names."""
    if not isinstance(named, str):
        return named
    module, colon, attribute = named.rpartition(":")
    if not colon:
        raise ValueError(f'invalid import path "{named}", expected "module:attribute"')
    return getattr(importlib.import_module(module), attribute)
