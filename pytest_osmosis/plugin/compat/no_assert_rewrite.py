"""Imports of this package that bypass pytest's assertion rewriting, which would add about 100 ms to the start.

Rewriting explains failed assertions of tests; this package contains no tests.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType


class _Finder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, path, target) if name.startswith("pytest_osmosis.") else None


@contextmanager
def without_assert_rewriting() -> Iterator[None]:
    sys.meta_path.insert(0, _Finder)
    try:
        yield
    finally:
        sys.meta_path.remove(_Finder)
