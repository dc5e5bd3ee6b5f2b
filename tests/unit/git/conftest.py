"""A repository for tests of commits and of worktrees."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.git.repositories import commit, git


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits on main, of which "early" is the first."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init")
    commit(folder, {"rewards.py": "1", "evals/agent.py": "1"})
    git(folder, "branch", "early")
    commit(folder, {"rewards.py": "2"})
    return folder
