"""Commits by SHA and branch, their worktrees, and the state of git, which runs nothing that the repository names."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

import pytest

from pytest_osmosis.git import WORKTREES, Commit, GitFault, GitQueries, GitQuery, GitState, Key, Worktrees, commit_of
from tests.plugin.workspaces import wait_until
from tests.raised import raised
from tests.unit.git.repositories import commit, git

HOLDER = """
import sys, time
from pathlib import Path
from pytest_osmosis.git import Worktrees, commit_of
folder = Path(sys.argv[1])
worktrees = Worktrees()
print(worktrees.of(commit_of(folder, "branch", "early"), folder).top, flush=True)
time.sleep(600)
"""


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


@pytest.fixture
def worktrees() -> Iterator[Worktrees]:
    made = Worktrees()
    yield made
    made.close()


def holder(repository: Path) -> tuple[subprocess.Popen[str], Path]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, str(repository)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as lines:
        return process, Path(lines.readline().strip())


def disturbed(repository: Path) -> tuple[str, ...]:
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
    before = disturbed(repository)

    made = worktrees.of(commit_of(repository, "branch", "early"), repository)

    assert (made.workspace / "rewards.py").read_text() == "1"
    assert made.top.parent == repository / WORKTREES
    assert disturbed(repository)[:3] == before[:3]
    assert worktrees.of(commit_of(repository, "commit_sha", made.commit.sha), repository) == made

    (made.top / "written.txt").touch()
    (made.top / "locked").mkdir(mode=0o500)
    worktrees.close()

    assert disturbed(repository) == before
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
    process, top = holder(repository)
    paths = (top, repository / ".git" / "worktrees" / top.name)
    assert all(path.is_dir() for path in paths)
    with process:
        process.send_signal(number)

    wait_until(lambda: not any(map(os.path.lexists, paths)), f"the end of {top}")


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


def fault(folder: Path, key: Key, value: str) -> str:
    return str(raised(GitFault, commit_of, folder, key, value))


@pytest.mark.parametrize("digits", [7, 8, 40])
def test_a_commit_is_found_by_the_beginning_of_its_sha_even_if_a_branch_has_that_name(
    repository: Path, digits: int
) -> None:
    first = git(repository, "rev-parse", "early")
    git(repository, "branch", first[:8], "main")

    found = commit_of(repository, "commit_sha", first[:digits].upper())

    assert found == Commit(repository, PurePosixPath("."), first, first[:7])
    assert found.title == first[:7]


def test_a_branch_is_the_local_one_or_else_that_of_origin(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", str(repository), "clone")
    clone = tmp_path / "clone"
    mine = commit(clone, {"rewards.py": "mine"})
    commit(clone, {"rewards.py": "mine, later"})
    git(clone, "reset", "-q", "--hard", mine)
    commit(repository, {"rewards.py": "theirs"})
    git(clone, "fetch", "-q")

    found = commit_of(clone, "branch", "main")

    assert (found.sha, found.title) == (mine, f"{mine[:7]} (branch main)")
    assert commit_of(clone, "branch", "early").sha == git(repository, "rev-parse", "early")


@pytest.mark.parametrize("name", ["erly", "early~0", "early^", "HEAD", "-h", "refs/heads/early", "early:rewards.py"])
def test_only_names_of_branches_are_branches_and_another_suggests_one(repository: Path, name: str) -> None:
    said = fault(repository, "branch", name)
    assert f'there is no branch "{name}"' in said
    assert name != "erly" or said.endswith(', did you mean "early"? (known here: early, main; nothing is fetched)')


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


NOTHING = GitState(None, None)


def state_of(folder: Path) -> GitState:
    return GitQuery.begin(folder).state()


def clean(repository: Path) -> GitState:
    return GitState(git(repository, "rev-parse", "HEAD"), False)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Git may take longer on a busy machine than users would wait for it, and no thread is left."""
    monkeypatch.setattr("pytest_osmosis.git.PATIENCE_S", 60.0)
    yield
    assert not [thread for thread in threading.enumerate() if thread.name == "osmosis-git"]


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
