"""Where a config's relative paths start, which paths stay inside, and how paths are written in messages."""

from __future__ import annotations

import os
from pathlib import Path


def workspace_of(path: Path) -> Path:
    """Where a config's relative paths start: the parent of the nearest `configs` above, else its folder."""
    folders = absolute(path).parents
    return next((folder.parent for folder in folders if folder.name == "configs"), folders[0])


def in_training(path: Path) -> bool:
    """True for a config under `configs/training/` of its workspace."""
    parts = absolute(path).relative_to(workspace_of(path)).parts
    return parts[:2] == ("configs", "training")


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


def inside(folder: Path, path: str) -> Path | None:
    """`path` from `folder` on with symlinks resolved, None where that leaves `folder` or leads nowhere."""
    try:
        home = folder.resolve()
        target = (home / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of symlinks, a name too long
        return None
    return target if target.is_relative_to(home) else None


def is_file(path: Path) -> bool:
    """True for an existing file, False also where the path cannot be looked up."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_folder(path: Path) -> bool:
    """True for an existing folder, False also where the path cannot be looked up."""
    try:
        return path.is_dir()
    except (OSError, ValueError):
        return False
