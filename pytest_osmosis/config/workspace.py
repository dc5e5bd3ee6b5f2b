"""Where a config's relative paths start, which paths stay inside, and how paths are written in messages."""

from __future__ import annotations

from pathlib import Path

from pytest_osmosis.text.paths import absolute


def workspace_of(path: Path) -> Path:
    """Where a config's relative paths start: the parent of the nearest `configs` above, else its folder."""
    folders = absolute(path).parents
    return next((folder.parent for folder in folders if folder.name == "configs"), folders[0])


def in_training(path: Path) -> bool:
    """True for a config under `configs/training/` of its workspace."""
    parts = absolute(path).relative_to(workspace_of(path)).parts
    return parts[:2] == ("configs", "training")


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
