"""How paths are written in messages."""

from __future__ import annotations

import os
from pathlib import Path


def absolute(path: Path) -> Path:
    """The path from the root on, `..` folded, symlinks kept."""
    return Path(os.path.abspath(path))  # noqa: PTH100 (resolve() follows symlinks)


def shown(path: Path) -> str:
    """The path for messages: from the current folder where that is shorter, else from the root."""
    whole = str(absolute(path))
    try:
        relative = os.path.relpath(whole)
    except ValueError:  # another drive
        return whole
    return min(relative, whole, key=len)
