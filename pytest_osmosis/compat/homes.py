"""Modules whose names load when they are first asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping


def names_from(module: str, homes: Mapping[str, str]) -> Callable[[str], object]:
    """Return the `__getattr__` of a module. `homes` maps its names to modules below it, such as ".core.base"."""

    def __getattr__(name: str) -> object:
        if name not in homes:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return getattr(importlib.import_module(homes[name], module), name)

    return __getattr__
