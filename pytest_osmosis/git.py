"""The git repository that holds a workspace: which commit its code is, and temporary worktrees of other commits.

The settings of a repository can name programs that git runs, such as a monitor of the file system, hooks and filters.
They are switched off, as are requests to other repositories, and git gets no variable but those in `PASSED_ON`. The
state is asked while the eval runs, so it delays nothing, and what git has not said in time is unknown.

Commits are named by SHA or by branch (`[experiment] commit_sha`, `branch`). Nothing is fetched. Worktrees are detached,
so that the user's files, index and stash stay as they are. They lie under `.osmosis` in the workspace. Whatever ends
this process, they do not outlive it: `close` removes them, or the guard of the process does. `git worktree prune` is
not called, as it would forget those on a drive that is not there.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path, PurePosixPath
from typing import Literal, NamedTuple

from msgspec import Struct

from pytest_osmosis.processes.child import GUARD
from pytest_osmosis.processes.guarding import remove
from pytest_osmosis.text.names import listed, shown, suggestion

BOUND_S = 600.0
"""The longest that one command of git may take: the checkout of a large repository."""
MOST_FILTERS = 100
SHA = re.compile("[0-9a-f]{40,64}")

PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT")
OURS = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
SAFELY = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "protocol.allow=never")
FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$")
STATE_BOUND_S = 30.0
PATIENCE_S = 1.0
"""The longest that the end of an eval waits for git."""
STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--no-renames")
PLACES = ("--", ":/", ":(exclude,top,glob)**/__pycache__/**")


class GitAnswer(NamedTuple):
    """The exit status of a command of git, and the texts that it printed, without line breaks at their ends."""

    status: int
    text: str
    error: str

    @property
    def lines(self) -> list[str]:
        return self.text.split("\n") if self.text else []


class GitFault(Exception):
    """Git is missing, does not answer, or refuses; the text says why."""


def program() -> str:
    """Return the path of git. Raises `GitFault` without one: a relative path may be the workspace's own program."""
    git = shutil.which("git")
    if git is None or not Path(git).is_absolute():
        raise GitFault("git is not installed, or not on PATH")
    return git


def environ(settings: Sequence[str] = ()) -> dict[str, str]:
    """Return git's environment, in which `settings` are empty."""
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environ = {**own, **OURS, "GIT_CONFIG_COUNT": str(len(settings))}
    for n, name in enumerate(settings):
        environ |= {f"GIT_CONFIG_KEY_{n}": name, f"GIT_CONFIG_VALUE_{n}": ""}
    return environ


def filters_of(listed: str) -> list[str]:
    """Return the settings that name filters, from the output of `FILTERS`. Raises `GitFault` if they are too many."""
    names = [name for name in listed.split("\0") if name]
    if len(names) > MOST_FILTERS:
        raise GitFault(f"its settings name more than {MOST_FILTERS} filters")
    return names


def ask(
    folder: Path,
    *arguments: str,
    settings: Sequence[str] = (),
    given: str = "",
    bound_s: float = BOUND_S,
    began: Callable[[subprocess.Popen[bytes]], None] = lambda process: None,
) -> GitAnswer:
    """Return the answer of git, called in `folder` without these `settings`. `given` is its input.

    Git ends with this process, or if the caller that it `began` for kills it. Bytes that are not UTF-8 stay what they
    are (`surrogateescape`). Raises `GitFault` if git cannot be called, or takes longer than `bound_s`.
    """
    command = [program(), *SAFELY, *arguments]
    try:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environ(settings),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C at a terminal must not leave half a worktree
        )
    except OSError as error:
        raise GitFault(f"git could not be started: {error.strerror}") from error
    except ValueError as error:
        raise GitFault("git takes no name with a null character") from error
    GUARD.watch(process.pid)
    try:
        began(process)
        output, complaints = process.communicate(os.fsencode(given), timeout=bound_s)
    except subprocess.TimeoutExpired:
        raise GitFault(f"`git {arguments[0]}` took longer than {bound_s:g} s") from None
    finally:
        GUARD.forget(process.pid)
        if process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return GitAnswer(process.returncode, *(os.fsdecode(text).strip("\n") for text in (output, complaints)))


class GitState(NamedTuple):
    """The commit that is checked out, and True if files differ from it or are not in git. None: unknown."""

    commit: str | None = None
    dirty: bool | None = None

    def to_json(self) -> dict[str, str | bool | None]:
        return {"git_commit": self.commit, "git_dirty": self.dirty}


class GitQuery:
    """Asks git about the repository that holds `folder`, in a thread of its own. `so_far` are its answers until now."""

    def __init__(self, folder: Path) -> None:
        self.so_far = GitState()
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._ask, name="osmosis-git", daemon=True)

    @classmethod
    def begin(cls, folder: Path) -> GitQuery:
        query = cls(folder)
        query._thread.start()
        return query

    def state(self) -> GitState:
        """Return what git has said. Waits for at most `PATIENCE_S`."""
        self._thread.join(PATIENCE_S)
        self.close()
        return self.so_far

    def close(self) -> None:
        """End git if it still runs. Idempotent."""
        self._closed = True
        if self._process is not None:
            self._process.kill()
        self._thread.join(PATIENCE_S)

    def _ask(self) -> None:
        with suppress(GitFault):
            commit = self._answer("rev-parse", "--verify", "--quiet", "HEAD^{commit}").text
            if SHA.fullmatch(commit):
                self.so_far = GitState(commit)
                filters = filters_of(self._answer(*FILTERS).text)
                changes = self._answer(*STATUS, *PLACES, settings=filters)
                if not changes.status:
                    self.so_far = GitState(commit, bool(changes.text))

    def _answer(self, *arguments: str, settings: Sequence[str] = ()) -> GitAnswer:
        answer = ask(self._folder, *arguments, settings=settings, bound_s=STATE_BOUND_S, began=self._note)
        if self._closed:
            raise GitFault("it was ended")
        return answer

    def _note(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        if self._closed:  # meanwhile
            process.kill()


class GitQueries:
    """The queries of a session: one for each workspace."""

    def __init__(self) -> None:
        self._by_folder: dict[Path, GitQuery] = {}

    def of(self, folder: Path) -> GitQuery:
        """Return the query about `folder`, which begins with the first call."""
        if folder not in self._by_folder:
            self._by_folder[folder] = GitQuery.begin(folder)
        return self._by_folder[folder]

    def close(self) -> None:
        for query in self._by_folder.values():
            query.close()


MOST_LISTED = 5
HEADS, ORIGIN = "refs/heads/", "refs/remotes/origin/"
Key = Literal["commit_sha", "branch"]
WORKTREES = Path(".osmosis", "worktrees")
WHOLE = ("-c", "core.sparseCheckout=false", "-c", "submodule.recurse=false")


class Commit(Struct, frozen=True):
    """A commit of the repository that holds a workspace.

    `repository` is the top folder of its work tree, and `subfolder` the path of the workspace in it, "." for the top
    itself. `name` is the SHA, as short as it can be; `branch` the branch by which the commit was found, None for a SHA.
    """

    repository: Path
    subfolder: PurePosixPath
    sha: str
    name: str
    branch: str | None = None

    @property
    def title(self) -> str:
        """Return the commit in words, like "1a2b3c4 (branch main)"."""
        return self.name if self.branch is None else f"{self.name} (branch {self.branch})"


def commit_of(workspace: Path, key: Key, value: str) -> Commit:
    """Return the commit that a config names. Raises `GitFault`, which says what is wrong and what is valid."""
    top, subfolder = _repository(workspace)
    ref = None if key == "commit_sha" else _ref(top, value)
    sha = _sha(top, value) if ref is None else _said(top, "rev-parse", f"{ref}^{{commit}}")
    name = _said(top, "rev-parse", "--short", sha)
    if str(subfolder) != "." and ask(top, "cat-file", "-e", f"{sha}:{subfolder}").status:
        raise GitFault(f"{name} has no folder {subfolder}, which is the workspace")
    return Commit(top, subfolder, sha, name, None if ref is None else value)


def _repository(workspace: Path) -> tuple[Path, PurePosixPath]:
    """Return the top folder of a work tree, and the path of the workspace in it."""
    answer = ask(workspace, "rev-parse", "--show-toplevel", "--show-prefix")
    if answer.status or not answer.lines:
        why = f": {answer.error}" if answer.error else ""
        raise GitFault(f"{shown(workspace)} is not in the work tree of a git repository{why}")
    top, *prefix = answer.lines
    return Path(top), PurePosixPath(prefix[0] if prefix else ".")


def _ref(folder: Path, branch: str) -> str:
    """Return the ref of a branch: the local one, or else that of origin."""
    for prefix in (HEADS, ORIGIN):
        if ask(folder, "show-ref", "--verify", "--quiet", f"{prefix}{branch}").status == 0:
            return f"{prefix}{branch}"
    refs = ask(folder, "for-each-ref", "--format=%(refname)", HEADS, ORIGIN).lines
    known = list(dict.fromkeys(ref.removeprefix(HEADS).removeprefix(ORIGIN) for ref in refs))
    known = [name for name in known if name != "HEAD"]
    names = listed(known, MOST_LISTED) or "none"
    raise GitFault(
        f'there is no branch "{branch}"{suggestion(branch, known)} (known here: {names}; nothing is fetched)'
    )


def _sha(folder: Path, given: str) -> str:
    """Return the commit whose SHA begins with `given`, which may be the name of a branch too."""
    found = _commits(folder, given.lower())
    if len(found) == 1:
        return found[0]
    if found:
        raise GitFault(f"{given} is the beginning of {len(found)} commits: {listed(found, MOST_LISTED)}")
    fix = "run `git fetch`, with --unshallow in a shallow clone"
    raise GitFault(f"there is no commit {given} in this clone, and nothing is fetched: {fix}")


def _commits(folder: Path, beginning: str) -> list[str]:
    objects = ask(folder, "rev-parse", f"--disambiguate={beginning}").lines
    kinds = ask(folder, "cat-file", "--batch-check", given="\n".join([*objects, ""])).lines if objects else []
    return [sha for sha, kind, *_ in map(str.split, kinds) if kind == "commit"]


def _said(folder: Path, *arguments: str) -> str:
    answer = ask(folder, *arguments)
    if answer.status:
        raise GitFault(f"`git {arguments[0]}` failed: {answer.error}")
    return answer.text


class Worktree(Struct, frozen=True):
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
        self._lock = threading.Lock()  # protects _made and _until_closed
        self._made: dict[tuple[Path, str], Worktree] = {}
        self._until_closed = ExitStack()

    def of(self, commit: Commit, workspace: Path) -> Worktree:
        """Return the worktree of a commit. Raises `GitFault` if it cannot be made."""
        key = commit.repository, commit.sha
        with self._lock:
            if key not in self._made:
                self._made[key] = self._new(commit, workspace / WORKTREES)
            return self._made[key]

    def close(self) -> None:
        """Remove all worktrees. Idempotent."""
        with self._lock:
            self._made.clear()
            self._until_closed.close()

    def _new(self, commit: Commit, home: Path) -> Worktree:
        git_folder = ask(commit.repository, "rev-parse", "--path-format=absolute", "--git-common-dir").text
        name = f"{commit.sha[:12]}-{secrets.token_hex(4)}"
        top, admin = home / name, Path(git_folder, "worktrees", name)
        try:
            home.mkdir(parents=True, exist_ok=True)
            (home / ".gitignore").write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise GitFault(f"{home}: no worktree can be made there: {error.strerror}") from error
        with ExitStack() as undo:
            for each in (admin, top):  # removed in the order from the last
                GUARD.remove_at_end(str(each))
                undo.callback(GUARD.keep, str(each))
                undo.callback(remove, str(each))
            filters = filters_of(ask(commit.repository, *FILTERS).text)
            add = (*WHOLE, "worktree", "add", "--detach", "--quiet", str(top), commit.sha)
            answer = ask(commit.repository, *add, settings=filters)
            if answer.status:
                raise GitFault(f"`git worktree add` failed: {answer.error}")
            self._until_closed.push(undo.pop_all())
        return Worktree(commit, top)
