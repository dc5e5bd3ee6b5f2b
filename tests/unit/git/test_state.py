"""The state of a git repository: what git says, within its bounds, and without running anything that it is told to."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_osmosis.git import GitQueries, GitQuery, GitState
from tests.unit.git.repositories import commit, git

NOTHING = GitState(None, None)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "osmosis-git"]


def state_of(folder: Path) -> GitState:
    return GitQuery.begin(folder).state()


def clean(repository: Path) -> GitState:
    return GitState(git(repository, "rev-parse", "HEAD"), False)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Git may take longer on a busy machine than users would wait for it."""
    monkeypatch.setattr("pytest_osmosis.git.PATIENCE_S", 60.0)


pytestmark = pytest.mark.usefixtures("patient")


def test_a_clean_tree_is_the_commit(repository: Path) -> None:
    commit(repository, {".gitignore": "ignored\n"})
    (repository / "__pycache__").mkdir()
    for ignored in ("ignored", "__pycache__/rewards.pyc"):
        (repository / ignored).touch()

    assert state_of(repository) == clean(repository)


@pytest.mark.parametrize("change", ["rewards.py", "new.py", "sub/new.py"])
def test_changed_and_new_files_make_all_folders_of_the_repository_dirty(repository: Path, change: str) -> None:
    file = repository / change
    file.parent.mkdir(exist_ok=True)
    file.write_text("3")

    states = [state_of(folder) for folder in (repository, repository / "evals")]
    assert states == [clean(repository)._replace(dirty=True)] * 2


def test_a_worktree_has_a_state_of_its_own(repository: Path, tmp_path: Path) -> None:
    git(repository, "worktree", "add", str(tmp_path / "other"))
    (repository / "rewards.py").write_text("3")

    assert state_of(tmp_path / "other") == clean(repository)


def test_a_submodule_counts_by_its_commit(repository: Path, tmp_path: Path) -> None:
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init")
    git(outer, "submodule", "add", str(repository), "inner")
    git(outer, "commit", "-m", "outer")
    (outer / "inner" / "rewards.py").write_text("3")

    assert [state_of(folder).dirty for folder in (outer / "inner", outer)] == [True, False]
    git(outer / "inner", "commit", "-am", "second")
    assert state_of(outer).dirty is True


def test_without_a_commit_nothing_is_known_and_in_a_bare_repository_it_alone(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "empty")
    git(tmp_path, "clone", "--bare", str(repository), "bare")

    assert [state_of(tmp_path / name) for name in ("empty", "", "gone")] == [NOTHING] * 3
    assert state_of(tmp_path / "bare") == clean(repository)._replace(dirty=None)


def test_without_git_nothing_is_known_and_that_of_the_current_folder_is_not_run(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repository / "git").write_text("#!/bin/sh\ntouch ran\n")
    (repository / "git").chmod(0o755)
    monkeypatch.chdir(repository)
    for path in ("", "."):
        monkeypatch.setenv("PATH", path)
        assert state_of(repository) == NOTHING
    assert not (repository / "ran").exists()


def test_variables_of_git_do_not_lead_to_another_repository(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hook of git, like pre-push, runs with such variables."""
    git(tmp_path, "init", "other")
    for name, path in {"GIT_DIR": "other/.git", "GIT_WORK_TREE": "other", "GIT_INDEX_FILE": "other/index"}.items():
        monkeypatch.setenv(name, str(tmp_path / path))

    assert state_of(repository) == clean(repository)


def test_nothing_runs_that_the_repository_names(repository: Path) -> None:
    """Each of these programs would run in a plain `git status`, or in the refresh of the index that it begins with."""
    (repository / "spy").write_text('#!/bin/sh\ntouch "$(dirname "$0")/ran"\ncat\n')
    (repository / "spy").chmod(0o755)
    spy = str(repository / "spy")
    commit(repository, {".gitattributes": "*.py filter=a=b.c\n"})
    settings = {"core.fsmonitor": spy, "core.hooksPath": str(repository), "filter.a=b.c.clean": spy}
    for name, value in {**settings, "filter.a=b.c.required": "true"}.items():
        git(repository, "config", name, value)
    for hook in ("post-index-change", "query-watchman"):
        (repository / hook).symlink_to(spy)
    os.utime(repository / "rewards.py", (1, 1))  # so that git reads it again

    assert state_of(repository).dirty is True  # the links are new files
    assert not (repository / "ran").exists()
    git(repository, "status")
    assert (repository / "ran").exists()


def test_git_that_takes_too_long_is_ended(repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec /bin/sleep 600\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    monkeypatch.setattr("pytest_osmosis.git.STATE_BOUND_S", 0.01)
    assert state_of(repository) == NOTHING

    monkeypatch.setattr("pytest_osmosis.git.STATE_BOUND_S", 600.0)
    monkeypatch.setattr("pytest_osmosis.git.PATIENCE_S", 0.01)
    query = GitQuery.begin(repository)
    assert query.state() == NOTHING
    query._thread.join(60)


def test_each_workspace_is_asked_once_and_a_closed_query_says_nothing(repository: Path, tmp_path: Path) -> None:
    queries = GitQueries()

    assert queries.of(repository) is queries.of(repository)
    assert queries.of(tmp_path).state() == NOTHING
    assert queries.of(repository).state().commit == git(repository, "rev-parse", "HEAD")
    queries.close()
    query = GitQuery(repository)
    query._closed = True
    query._thread.start()
    assert query.state() == NOTHING
