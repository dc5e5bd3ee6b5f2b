"""The git commit of a workspace, and if its work tree had changes: the version of the code that results are about.

Git is asked while the eval runs, so it delays nothing, and what it has not said in time is unknown. It only reads, and
runs nothing that the repository's settings name (`git.command`).
"""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from pytest_osmosis.git.command import FILTERS, SHA, GitAnswer, GitFault, ask, filters_of

BOUND_S = 30.0
"""The longest that one command of git may take."""
PATIENCE_S = 1.0
"""The longest that the end of an eval waits for git."""
STATUS = ("status", "--porcelain", "-z", "--untracked-files=normal", "--ignore-submodules=dirty", "--no-renames")
PLACES = ("--", ":/", ":(exclude,top,glob)**/__pycache__/**")


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
        answer = ask(self._folder, *arguments, settings=settings, bound_s=BOUND_S, began=self._note)
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
