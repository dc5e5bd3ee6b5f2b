"""The paths of a commit's code, in a process that runs it from a worktree."""

from __future__ import annotations

import sys
from pathlib import Path

from pytest_osmosis.host.protocol import CommitFields
from pytest_osmosis.text.user_code import is_installed, name_folder


def use_worktree(commit: CommitFields) -> None:
    """Show files of the worktree as those of the commit, and import from it what was installed from the repository.

    Editable installs, and PYTHONPATH, put folders of the repository on `sys.path`.
    """
    name_folder(commit["worktree"], commit["name"])
    repository = Path(commit["repository"]).resolve()
    for index, entry in enumerate(sys.path):
        folder = Path(entry).resolve()
        if entry and folder.is_relative_to(repository) and not is_installed(entry):
            moved = Path(commit["worktree"], folder.relative_to(repository))
            if moved.is_dir():
                sys.path[index] = str(moved)
