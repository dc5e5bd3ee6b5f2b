"""Imports of ours past pytest, which rewrites the assertions of plugins: that takes half as long again, for nothing.

Assertions are rewritten so that failures of tests explain themselves; none of ours is a test's.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Finder:
    """Python's own finder for our modules, asked before pytest's."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_osmosis.") else None


@contextmanager
def imported_plainly() -> Iterator[None]:
    """What is imported of ours meanwhile is imported as it is."""
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)
