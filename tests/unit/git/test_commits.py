"""Commits by SHA and by branch, and the errors that say why one cannot be had."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest

from pytest_osmosis.git import Commit, GitFault, Key, commit_of
from tests.unit.git.repositories import commit, git


def fault(folder: Path, key: Key, value: str) -> str:
    with pytest.raises(GitFault) as error:
        commit_of(folder, key, value)
    return str(error.value)


@pytest.mark.parametrize("digits", [7, 12, 40])
def test_a_commit_is_found_by_the_beginning_of_its_sha(repository: Path, digits: int) -> None:
    first = git(repository, "rev-parse", "early")

    found = commit_of(repository, "commit_sha", first[:digits].upper())

    assert found == Commit(repository, PurePosixPath("."), first, first[:7])
    assert found.title == first[:7]


def test_a_sha_is_never_taken_for_the_name_of_a_branch(repository: Path) -> None:
    first, second = git(repository, "rev-parse", "early"), git(repository, "rev-parse", "main")
    git(repository, "branch", first[:8], second)

    assert commit_of(repository, "commit_sha", first[:8]).sha == first


@pytest.fixture
def clone(repository: Path, tmp_path: Path) -> Path:
    git(tmp_path, "clone", "-q", str(repository), "clone")
    return tmp_path / "clone"


def test_a_branch_is_the_local_one_or_else_that_of_origin(repository: Path, clone: Path) -> None:
    mine = commit(clone, {"rewards.py": "mine"})
    commit(clone, {"rewards.py": "mine, later"})
    git(clone, "reset", "-q", "--hard", mine)
    commit(repository, {"rewards.py": "theirs"})
    git(clone, "fetch", "-q")

    found = commit_of(clone, "branch", "main")

    assert (found.sha, found.title) == (mine, f"{mine[:7]} (branch main)")
    assert commit_of(clone, "branch", "early").sha == git(repository, "rev-parse", "early")


def test_a_workspace_may_be_a_folder_of_the_repository(repository: Path) -> None:
    assert commit_of(repository / "evals", "branch", "early").subfolder == PurePosixPath("evals")


def test_an_unknown_branch_suggests_one(repository: Path) -> None:
    assert fault(repository, "branch", "erly") == (
        'there is no branch "erly", did you mean "early"? (known here: early, main; nothing is fetched)'
    )


@pytest.mark.parametrize("name", ["early~0", "early^", "HEAD", "-h", "refs/heads/early", "early:rewards.py"])
def test_only_names_of_branches_are_branches(repository: Path, name: str) -> None:
    assert f'there is no branch "{name}"' in fault(repository, "branch", name)


def test_only_a_commit_of_this_clone_is_found_by_its_sha(repository: Path) -> None:
    tree = git(repository, "rev-parse", "early^{tree}")
    assert fault(repository, "commit_sha", tree) == (
        f"there is no commit {tree} in this clone, and nothing is fetched: "
        "run `git fetch`, with --unshallow in a shallow clone"
    )


def test_a_commit_that_cannot_be_looked_for_is_a_fault(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(repository, {"later/agent.py": "1"})

    assert fault(repository / "later", "branch", "early").endswith("has no folder later, which is the workspace")
    assert "null character" in fault(repository, "branch", "early\0")
    assert "is not in the work tree of a git repository" in fault(tmp_path, "branch", "main")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fault(repository, "branch", "main") == "git is not installed, or not on PATH"
