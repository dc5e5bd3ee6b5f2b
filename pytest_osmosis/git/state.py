"""The git commit of a workspace, and if its work tree had changes: the version of the code that results are about.

Git is asked while the eval runs, so it delays nothing, and what it has not said in time is unknown. It only reads, and
runs nothing that the repository's settings name (`git.command`).
"""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.git.command import FILTERS, SAFELY, GitFault, environ, filters_of, program

BOUND_S = 30.0
"""The longest that one command of git may take."""
PATIENCE_S = 1.0
"""The longest that the end of an eval waits for git."""
MOST_BYTES = 100_000
STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--no-renames")
PLACES = ("--", ":/", ":(exclude,top,glob)**/__pycache__/**")
COMMIT = re.compile(rb"[0-9a-f]{40,64}")


class GitState(NamedTuple):
    """The commit that is checked out, and True if files differ from it or are not in git. None: unknown."""

    commit: str | None = None
    dirty: bool | None = None

    def to_json(self) -> dict[str, str | bool | None]:
        return {"git_commit": self.commit, "git_dirty": self.dirty}


class GitQuery:
    """Asks git about the repository that holds `folder`, in a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._state = GitState()
        self._process: subprocess.Popen[bytes] | None = None
        self._closed = False
        self._lock = threading.Lock()  # protects _process and _closed
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
        return self._state

    @property
    def so_far(self) -> GitState:
        """The answers of git until now."""
        return self._state

    def close(self) -> None:
        """End git if it still runs. Idempotent."""
        with self._lock:
            self._closed = True
            if self._process is not None:
                self._process.kill()
        self._thread.join(PATIENCE_S)

    def _ask(self) -> None:
        try:
            commit = self._said("rev-parse", "--verify", "--quiet", "HEAD^{commit}").strip()
            if COMMIT.fullmatch(commit):
                self._state = GitState(commit.decode("ascii"))
                self._state = self._state._replace(dirty=self._is_dirty())
        except (OSError, subprocess.SubprocessError, GitFault):
            pass

    def _is_dirty(self) -> bool:
        filters = filters_of(self._said(*FILTERS, may_fail=True))
        return bool(self._said(*STATUS, *PLACES, most_bytes=1, settings=filters))

    def _said(
        self, *arguments: str, most_bytes: int = MOST_BYTES, may_fail: bool = False, settings: Sequence[str] = ()
    ) -> bytes:
        """Return the beginning of git's output, without these `settings`. Raises `GitFault` if it fails or is ended."""
        process = self._start(arguments, settings)
        timer = threading.Timer(BOUND_S, process.kill)
        timer.start()
        try:
            assert process.stdout is not None
            with process.stdout as output:
                head = output.read(most_bytes)
            status = process.wait()
        finally:
            timer.cancel()
        if self._closed or not (status == 0 or may_fail or len(head) == most_bytes):
            raise GitFault("it was not said")
        return head

    def _start(self, arguments: Sequence[str], settings: Sequence[str]) -> subprocess.Popen[bytes]:
        git = program()
        with self._lock:
            if self._closed:
                raise GitFault("it was not said")
            self._process = subprocess.Popen(
                [git, *SAFELY, *arguments],
                cwd=self._folder,
                env=environ(settings),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            return self._process


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
