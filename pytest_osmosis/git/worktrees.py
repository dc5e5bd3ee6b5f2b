"""Temporary worktrees of commits: `git worktree`, detached, so that the user's files, index and stash stay as they are.

They lie under `.osmosis` in the workspace. Whatever ends this process, they do not outlive it: `close` removes them, or
the guard of the process does. What is left after both were killed, the next session removes. Only worktrees that this
module made are ever removed; `git worktree prune` is not called, as it would forget those on a drive that is not there.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from io import FileIO
from pathlib import Path

from pytest_osmosis.git.command import FILTERS, GitFault, ask, filters_of
from pytest_osmosis.git.commits import Commit
from pytest_osmosis.processes.guard import GUARD
from pytest_osmosis.processes.guarding import remove

WORKTREES = Path(".osmosis", "worktrees")
LOCK = ".lock"
NAME = re.compile("[0-9a-f]{12}-[0-9a-f]{8}")
"""The names of our worktrees. A repository may hold lock files that name others, and they must remove nothing."""
WHOLE = ("-c", "core.sparseCheckout=false", "-c", "submodule.recurse=false")


@dataclass(frozen=True, slots=True)
class Worktree:
    """The files of a commit. `workspace` is the folder that the workspace is there."""

    commit: Commit
    top: Path

    @property
    def workspace(self) -> Path:
        return self.top / self.commit.subfolder

    def moved(self, path: str) -> str:
        """Return the path of the commit's version of a file or folder; one outside of the repository stays."""
        try:
            inside = Path(path).resolve().relative_to(self.commit.repository.resolve())
        except (OSError, RuntimeError, ValueError):
            return path
        return str(self.top / inside)


class Worktrees:
    """The worktrees of a session: one for each commit, made when it is first needed. For any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # protects _made
        self._made: dict[tuple[Path, str], tuple[Worktree, _Folder]] = {}

    def of(self, commit: Commit, workspace: Path) -> Worktree:
        """Return the worktree of a commit. Raises `GitFault` if it cannot be made."""
        key = commit.repository, commit.sha
        with self._lock:
            if key not in self._made:
                self._made[key] = _made(commit, workspace / WORKTREES)
            return self._made[key][0]

    def close(self) -> None:
        """Remove all worktrees. Idempotent."""
        with self._lock:
            for _, folder in self._made.values():
                folder.remove()
            self._made.clear()


class _Folder:
    """The folder of a worktree, with what git keeps about it, and a lock that says that it is in use."""

    def __init__(self, path: Path, admin: Path) -> None:
        self.path = path
        lock = path.with_name(f"{path.name}{LOCK}")
        self._paths = (str(path), str(admin), str(lock))
        self._lock = lock.open("xb", buffering=0)
        self._lock.write(f"{admin}\n".encode())
        _locked(self._lock)
        for each in self._paths:
            GUARD.remove_at_end(each)

    def remove(self) -> None:
        for each in self._paths:
            remove(each)
            GUARD.keep(each)
        self._lock.close()


def _made(commit: Commit, home: Path) -> tuple[Worktree, _Folder]:
    git_folder = ask(commit.repository, "rev-parse", "--path-format=absolute", "--git-common-dir").text
    name = f"{commit.sha[:12]}-{secrets.token_hex(4)}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        (home / ".gitignore").write_text("*\n", encoding="utf-8")
        _remove_stale(home)
        folder = _Folder(home / name, Path(git_folder, "worktrees", name))
    except OSError as error:
        raise GitFault(f"{home}: no worktree can be made there: {error.strerror}") from error
    try:
        filters = filters_of(ask(commit.repository, *FILTERS).text)
        answer = ask(
            commit.repository, *WHOLE, "worktree", "add", "--detach", "--quiet", str(folder.path), commit.sha,
            settings=filters,
        )  # fmt: skip
        if answer.status:
            raise GitFault(f"`git worktree add` failed: {answer.error}")
    except BaseException:
        folder.remove()
        raise
    return Worktree(commit, folder.path), folder


def _remove_stale(home: Path) -> None:
    """Remove the worktrees of processes that were killed together with their guards."""
    for lock in home.glob(f"*{LOCK}"):
        if not NAME.fullmatch(lock.stem) or not lock.is_file():
            continue
        with contextlib.suppress(OSError), lock.open("rb", buffering=0) as file:
            if _locked(file):
                for path in (lock.with_suffix(""), *_admin_folders(file, lock.with_suffix("").name), lock):
                    remove(str(path))


def _admin_folders(lock: FileIO, name: str) -> Iterator[Path]:
    """Yield the folder in which git keeps what it knows about a worktree, if the lock file names it."""
    path = Path(lock.read(4096).decode(errors="surrogateescape").strip())
    if path.is_absolute() and path.name == name and path.parent.name == "worktrees":
        yield path


def _locked(file: FileIO) -> bool:
    """Lock a file until it is closed. Return False if another process holds the lock."""
    try:
        import fcntl

        fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError):
        return False
    return True
