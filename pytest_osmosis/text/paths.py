"""Paths in messages."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(path: Path) -> Path:
    """Return the absolute path, without `..` and without resolving symlinks."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() follows symlinks)


def shown(path: Path) -> str:
    """Return the path relative to the current folder if that is shorter, or else the absolute path."""
    whole = str(absolute(path))
    try:
        relative = os.path.relpath(whole)
    except ValueError:  # another drive
        return whole
    return min(relative, whole, key=len)
