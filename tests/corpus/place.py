"""A workspace whose commands are processes of the version that is recorded, and everything that is seen of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.corpus import normalise
from tests.plugin.under_xdist import Copy
from tests.plugin.workspaces import PYTEST, Session
from tests.servers import ChatServer

DEADLINE_S = 600.0
RANDOM = re.compile(r"-\d{8}T\d{6}Z-\w+$")
HEADERS = ("x-", "authorization", "anthropic")
"""The beginnings of names of headers that are shown with a request."""


class Place(Copy):
    """A copy that judges no exit status, and shows commands of ours too."""

    def __init__(self, root: Path, arguments: list[str], server: ChatServer) -> None:
        super().__init__(root, arguments, server)
        self._headers = len(server.requests)

    def command(self, status: int, *args: str, stdin: str = "", folder: str = ".", **environment: str) -> None:
        """Run `pytest <args>`. Whatever its status is, it is noted."""
        self.typed([*PYTEST, *self.plugins, *self.arguments, *args], ["pytest", *args], stdin, folder, environment)

    def background(self, status: int, *args: str, until: Callable[[Session], object]) -> None:
        """Run `pytest <args>` until `until` has ended it. Whatever its status is, it is noted."""
        before = self._files()
        session = self.start(*args)
        until(session)
        try:
            ended = session.wait()
        except ValueError:  # it was killed, and its output closed
            ended = -signal.SIGKILL
        self._note(("pytest", *args), ended, session.output, "", before)

    def typed(
        self,
        words: list[str],
        shown: list[str],
        stdin: str = "",
        folder: str = ".",
        environment: Mapping[str, str] | None = None,
    ) -> tuple[int, str, str]:
        """Run a command and note what can be seen of it, under the words `shown`."""
        before = self._files()
        done = subprocess.run(
            words,
            cwd=self.root / folder,
            env={**os.environ, **(environment or {})},
            input=stdin.encode(),
            capture_output=True,
            timeout=DEADLINE_S,
            check=False,
        )
        out, err = (text.decode("utf-8", "backslashreplace") for text in (done.stdout, done.stderr))
        self._note(tuple(shown), done.returncode, out, err, before)
        return done.returncode, out, err

    def run(self, *args: str, stdin: bytes | None = None, exits: int | None = None) -> pytest.RunResult:
        """Run `pytest <args>` for stories that look at the result themselves. Whatever its status is, it is noted."""
        given = [*PYTEST, *self.plugins, *self.arguments, *args]
        status, out, err = self.typed(given, ["pytest", *args], (stdin or b"").decode())
        return pytest.RunResult(status, out.splitlines(), err.splitlines(), 0.0)

    def cli(self, *args: str) -> pytest.RunResult:
        status, out, err = self.typed([sys.executable, "-m", "pytest_osmosis", *args], ["pytest-osmosis", *args])
        return pytest.RunResult(status, out.splitlines(), err.splitlines(), 0.0)

    def content(self, path: Path) -> list[str]:
        return normalise.content(path)

    def _note(self, args: tuple[str, ...], status: int, out: str, err: str, before: Mapping[str, bytes]) -> None:
        at = len(self.shown)
        super()._note(args, status, out, err, before)
        self.shown[at] = f"$ {' '.join(args)}"
        asked = self.server.requests[self._headers :]
        self._headers += len(asked)
        seen = sorted({f"{each.path} {json.dumps(_shown(each.headers), sort_keys=True)}" for each in asked})
        self.shown += [f"    to {line}" for line in normalise.shortened(seen)]

    def _name_runs(self) -> None:
        """Name new run directories, but those whose names a story chose, which may be short words."""
        super()._name_runs()
        self._names = {run: name for run, name in self._names.items() if RANDOM.search(run)}

    def text(self) -> list[str]:
        """Return all that was noted, without what varies."""
        text = self._named("\n".join(self.shown)).replace(str(self.root), "ROOT")
        text = text.replace(sys.prefix, "PYTHON").replace(os.environ["PYTHONPATH"], "CODE")
        return normalise.masked_text(text).splitlines()


def _shown(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    return {name: value for name, value in headers.items() if name.startswith(HEADERS)}
