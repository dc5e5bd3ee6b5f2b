"""The state of a workspace's repository, and commands of git, which run nothing that a repository's settings name.

The settings of a repository can name programs that git runs, such as a monitor of the file system, hooks and filters.
They are switched off, as are requests to other repositories, and git gets no variable but those in `PASSED_ON`. The
state is asked while the eval runs, so it delays nothing, and what git has not said in time is unknown.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.processes.child import GUARD

BOUND_S = 600.0
"""The longest that one command of git may take: the checkout of a large repository."""
MOST_FILTERS = 100
SHA = re.compile("[0-9a-f]{40,64}")

PASSED_ON = ("PATH", "HOME", "XDG_CONFIG_HOME", "SYSTEMROOT")
OURS = {"LC_ALL": "C", "GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "GIT_NO_LAZY_FETCH": "1"}
SAFELY = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}", "-c", "protocol.allow=never")
FILTERS = ("config", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|smudge|process|required)$")
STATE_BOUND_S = 30.0
"""The longest that one command of git may take."""
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
    """Return git's environment, in which `settings` have no value."""
    own = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environ = {**own, **OURS, **({"GIT_CONFIG_COUNT": str(len(settings))} if settings else {})}
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
            with contextlib.suppress(OSError):
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
