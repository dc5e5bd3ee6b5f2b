"""Temporary worktrees: whole, harmless to the user's repository, and gone whatever ends the process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.git import WORKTREES, GitFault, Worktrees, commit_of
from tests.plugin.workspaces import wait_until
from tests.unit.git.repositories import commit, git

HOLDER = """
import sys, time
from pathlib import Path
from pytest_osmosis.git import commit_of
from pytest_osmosis.git import Worktrees
folder = Path(sys.argv[1])
worktrees = Worktrees()
worktree = worktrees.of(commit_of(folder, "branch", "early"), folder)
print(worktree.top, flush=True)
time.sleep(600)
"""


@pytest.fixture
def worktrees() -> Iterator[Worktrees]:
    made = Worktrees()
    yield made
    made.close()


def holder(repository: Path) -> subprocess.Popen[str]:
    """Start a process that holds a worktree."""
    return subprocess.Popen([sys.executable, "-c", HOLDER, str(repository)], stdout=subprocess.PIPE, text=True)


def top_of(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    with process.stdout as lines:
        return Path(lines.readline().strip())


def gone(*paths: Path) -> None:
    wait_until(lambda: not any(map(os.path.lexists, paths)), f"the end of {paths[0]}")


def state_of(repository: Path) -> tuple[str, ...]:
    """Everything of the user's that a worktree might disturb."""
    asked = [
        ("status", "--porcelain", "--branch"), ("stash", "list"), ("for-each-ref",), ("worktree", "list"),
        ("config", "--list", "--local"), ("rev-parse", "HEAD"), ("reflog",),
    ]  # fmt: skip
    index = (repository / ".git" / "index").read_bytes().hex()
    return (index, *(git(repository, *arguments) for arguments in asked))


def test_a_worktree_has_the_files_of_the_commit_and_leaves_no_trace(repository: Path, worktrees: Worktrees) -> None:
    (repository / "rewards.py").write_text("3, staged")
    git(repository, "add", ".")
    git(repository, "stash")
    (repository / "rewards.py").write_text("4, not staged")
    (repository / ".osmosis").mkdir()
    (repository / ".osmosis" / ".gitignore").write_text("*\n")
    before = state_of(repository)

    made = worktrees.of(commit_of(repository, "branch", "early"), repository)

    assert (made.workspace / "rewards.py").read_text() == "1"
    assert made.top.parent == repository / WORKTREES
    assert state_of(repository)[:3] == before[:3]
    assert worktrees.of(commit_of(repository, "commit_sha", made.commit.sha), repository) == made

    (made.top / "written.txt").touch()
    (made.top / "locked").mkdir(mode=0o500)
    worktrees.close()

    assert state_of(repository) == before
    assert [path.name for path in (repository / WORKTREES).iterdir()] == [".gitignore"]
    assert not (repository / ".git" / "worktrees").exists()


@pytest.mark.parametrize("name", ["mine", "\udcff"], ids=["plain", "not-utf-8"])
def test_hooks_and_filters_of_the_repository_do_not_run(
    repository: Path, worktrees: Worktrees, tmp_path: Path, name: str
) -> None:
    trace = tmp_path / "ran"
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {trace}\n")
    hook.chmod(0o755)
    (repository / ".gitattributes").write_bytes(os.fsencode(f"rewards.py filter={name}\n"))
    commit(repository, {})
    for kind in ("smudge", "process", "clean"):
        git(repository, "config", f"filter.{name}.{kind}", f"touch {trace}; cat")
    git(repository, "config", f"filter.{name}.required", "true")
    trace.unlink(missing_ok=True)

    made = worktrees.of(commit_of(repository, "branch", "main"), repository)

    assert (made.top / "rewards.py").read_text() == "2"
    assert not trace.exists()


def test_paths_move_into_a_worktree_of_the_whole_repository_also_from_a_sparse_checkout(
    repository: Path, worktrees: Worktrees
) -> None:
    found = commit_of(repository / "evals", "branch", "early")
    git(repository, "sparse-checkout", "set", "nothing")

    made = worktrees.of(found, repository / "evals")

    assert made.workspace == made.top / "evals"
    assert (made.workspace / "agent.py").exists()
    assert made.moved(str(repository / "src")) == str(made.top / "src")
    assert made.moved("/usr/lib") == "/usr/lib"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worktree_does_not_outlive_its_process(repository: Path, number: signal.Signals) -> None:
    with holder(repository) as process:
        top = top_of(process)
        assert top.is_dir()
        admin = repository / ".git" / "worktrees" / top.name
        assert admin.is_dir()
        process.send_signal(number)

    gone(top, admin)


def test_a_worktree_that_cannot_be_made_leaves_nothing(repository: Path, worktrees: Worktrees) -> None:
    found = commit_of(repository, "branch", "early")
    blob = git(repository, "rev-parse", "early:rewards.py")
    (repository / ".git" / "objects" / blob[:2] / blob[2:]).unlink()

    with pytest.raises(GitFault, match="`git worktree add` failed: "):
        worktrees.of(found, repository)

    assert [path.name for path in (repository / WORKTREES).iterdir()] == [".gitignore"]
    assert not (repository / ".git" / "worktrees").exists()


@pytest.mark.parametrize("name", ["ends with a blank ", "line\u2028separator", "-dash; touch x"])
def test_a_repository_in_a_folder_with_an_odd_name(tmp_path: Path, worktrees: Worktrees, name: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    git(folder, "init")
    commit(folder, {"rewards.py": "1"})
    git(folder, "branch", "early")
    worktree = worktrees.of(commit_of(folder, "branch", "early"), folder)

    assert (worktree.workspace / "rewards.py").read_text() == "1"
