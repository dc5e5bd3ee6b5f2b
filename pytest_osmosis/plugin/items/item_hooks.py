"""The hooks that pytest calls for tests of evals, without those of built-in plugins that wrap in-process test code.

Nothing of a unit runs in pytest's process unless an eval is inline, so these plugins would do nothing. Calling them
takes 0.2 ms of CPU for each test, a quarter of what pytest and this plugin need for one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

UNNEEDED = (
    *("assertion", "capturemanager", "faulthandler", "logging-plugin", "threadexception", "tmpdir", "unittest"),
    *("unraisableexception", "warnings"),
)
"""Names under which pytest registers these plugins. A name that changes costs its time again, and nothing else."""


class ItemHooks:
    """pytest's hooks without those of some plugins. Each hook caller is made once."""

    def __init__(self, manager: pytest.PytestPluginManager, without: Sequence[object]) -> None:
        self._manager = manager
        self._without = without

    def __getattr__(self, name: str) -> Any:
        caller = self._manager.subset_hook_caller(name, remove_plugins=self._without)
        setattr(self, name, caller)
        return caller


def item_hooks(file: pytest.File) -> Any:
    """Return the hooks for the items of a file: all of them if a conftest.py elsewhere does not apply to the file."""
    hooks, manager = file.ihook, file.config.pluginmanager
    if hooks is not file.config.hook:
        return hooks
    return ItemHooks(manager, [plugin for name in UNNEEDED if (plugin := manager.get_plugin(name)) is not None])
