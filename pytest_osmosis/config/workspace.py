"""The workspace of a config: the folder that its relative paths start from."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

from pytest_osmosis.text.names import absolute


def workspace_of(path: Path) -> Path:
    """Return the parent of the nearest folder `configs` above a config, or else the config's own folder."""
    folders = absolute(path).parents
    return next((folder.parent for folder in folders if folder.name == "configs"), folders[0])


def in_configs(path: Path, folder: Literal["eval", "training"]) -> bool:
    """Return True for a config under `configs/eval/` or `configs/training/` of its workspace."""
    return absolute(path).is_relative_to(workspace_of(path) / "configs" / folder)


def inside(folder: Path, path: str) -> Path | None:
    """Return `folder / path` with symlinks resolved, or None if it is outside of `folder` or cannot be resolved."""
    try:
        home = folder.resolve()
        target = (home / path).resolve()
    except (OSError, RuntimeError, ValueError):  # a loop of symlinks, a name too long
        return None
    return target if target.is_relative_to(home) else None


def is_file(path: Path) -> bool:
    """Return True for an existing file. Unlike `Path.is_file`, returns False if the path cannot be looked up."""
    return os.path.isfile(path)  # noqa: PTH113


def is_folder(path: Path) -> bool:
    return os.path.isdir(path)  # noqa: PTH112
