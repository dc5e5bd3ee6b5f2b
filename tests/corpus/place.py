"""A workspace whose commands are processes of the version that is recorded, and everything that is seen of them.

What differs between two recordings is masked: times, ids, ports, sizes and digests of paths.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import pytest

from tests.plugin import under_xdist
from tests.plugin.under_xdist import Copy, masked
from tests.plugin.workspaces import PYTEST, Session

DEADLINE_S = 600.0
MASKS = (
    *under_xdist.MASKS,
    (re.compile(r"\b0x[0-9a-f]{6,}\b"), "ADDRESS"),
    (re.compile(r"-\d{8}T\d{6}Z-[0-9a-f]{6}\b"), "-RUN"),
    (re.compile(r"\bpid \d+"), "pid PID"),
    (re.compile(r'"(crc|pid|nonce|salt)": ?("[^"]*"|\d+)'), r'"\1": "ID"'),
    (re.compile(r'"(started|place|token)": "(\d+|[0-9a-f-]+ pid:\[\d+\]|[0-9a-f]{16})"'), r'"\1": "ID"'),  # of a lock
    (re.compile(r"\bprocess(,?) \d+ on\b"), r"process\1 PID on"),
    (re.compile(r"^TIME (setup|call|teardown)  .*", re.MULTILINE), "TIME of a test"),
    (re.compile(r"_ms((?: {1,2}\d[\d.]*)+)"), "_ms TIMES"),
    (re.compile(r'"live": \d+'), '"live": "PID"'),
    (re.compile(r'"(start_time|end|overhead|total)": \d+\.\d+'), r'"\1": "TIME"'),
    (re.compile(r'"(duration_s|\w+_ms)": \d+(\.\d+)?'), r'"\1": "TIME"'),
    (re.compile(r'"sha256": "[0-9a-f]{64}"'), '"sha256": "OF A FILE WITH TIMES"'),
)
MOST_LINES = 3000
"""Longer texts are kept as their first lines and a digest."""
NOT_SHOWN = {"groups.txt", "loads.txt", "rollouts.txt"}
"""Files in which code of other tests notes the numbers of its processes."""
HEADERS = ("x-", "authorization", "anthropic")
"""The beginnings of names of headers that are shown with a request."""


class Place(Copy):
    """A copy that judges no exit status, and shows commands of ours and headers of requests too."""

    def command(self, status: int, *args: str, stdin: str = "", folder: str = ".", **environment: str) -> None:
        """Run `pytest <args>`. Whatever its status is, it is noted."""
        words = [*PYTEST, *self.plugins, *self.arguments, *args]
        self._typed(words, ["pytest", *args], stdin.encode(), folder, environment)

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

    def run(self, *args: str, stdin: bytes | None = None, exits: int | None = None) -> pytest.RunResult:
        """Run `pytest <args>` for stories that look at the result themselves. Whatever its status is, it is noted."""
        return self._typed([*PYTEST, *self.plugins, *self.arguments, *args], ["pytest", *args], stdin or b"")

    def cli(self, *args: str) -> pytest.RunResult:
        return self._typed([sys.executable, "-m", "pytest_osmosis", *args], ["pytest-osmosis", *args])

    def _typed(
        self,
        words: Sequence[str],
        shown: Sequence[str],
        stdin: bytes = b"",
        folder: str = ".",
        environment: Mapping[str, str] | None = None,
    ) -> pytest.RunResult:
        before = self._files()
        env = {**os.environ, **(environment or {})}
        done = subprocess.run(
            words, cwd=self.root / folder, env=env, input=stdin, capture_output=True, timeout=DEADLINE_S, check=False
        )
        out, err = (text.decode("utf-8", "backslashreplace") for text in (done.stdout, done.stderr))
        self._note(tuple(shown), done.returncode, out, err, before)
        return pytest.RunResult(done.returncode, out.splitlines(), err.splitlines(), 0.0)

    def content(self, path: Path) -> list[str]:
        return content(path)

    def _note(self, args: tuple[str, ...], status: int, out: str, err: str, before: Mapping[str, bytes]) -> None:
        at, n_asked = len(self.shown), self._asked
        super()._note(args, status, out, err, before)
        self.shown[at] = f"$ {' '.join(args)}"
        seen = set()
        for each in self.server.requests[n_asked : self._asked]:
            headers = {name: value for name, value in each.headers.items() if name.startswith(HEADERS)}
            seen.add(f"    to {each.path} {json.dumps(headers, sort_keys=True)}")
        self.shown += shortened(sorted(seen))

    def _name_runs(self) -> None:
        """Name new run directories, but those whose names a story chose, which may be short words."""
        super()._name_runs()
        self._names = {run: name for run, name in self._names.items() if re.search(r"-\d{8}T\d{6}Z-\w+$", run)}

    def text(self) -> list[str]:
        """Return all that was noted, without what varies."""
        text = self._named("\n".join(self.shown)).replace(str(self.root), "ROOT")
        text = text.replace(sys.prefix, "PYTHON").replace(os.environ["PYTHONPATH"], "CODE")
        return masked_text(text).splitlines()


def masked_text(text: str) -> str:
    for mask, word in MASKS:
        text = mask.sub(word, text)
    return text


def content(path: Path) -> list[str]:
    """Return what a file holds, in lines: a journal run by run, whatever cannot be read as the bytes that it has."""
    if path.name in NOT_SHOWN:
        return []
    try:
        found = journal(path.read_bytes()) if path.name == "journal.jsonl" else under_xdist.content(path)
    except Exception as error:  # damaged on purpose, or written by a version that wrote another shape
        raw = path.read_bytes()
        found = [f"not read ({type(error).__name__}): {masked_text(raw.decode('utf-8', 'backslashreplace'))[:2000]}"]
    return shortened(found)


def shortened(lines: Iterable[str]) -> list[str]:
    """Return the lines, or the first of very many and a digest of all."""
    found = list(lines)
    if len(found) <= MOST_LINES:
        return found
    digest = hashlib.sha256(masked_text("\n".join(found)).encode("utf-8", "replace")).hexdigest()[:16]
    return [*found[:200], f"... {len(found)} lines with the digest {digest}"]


def journal(raw: bytes) -> list[str]:
    """Return the events of a journal, those of each run together in their order, without the package's own reader.

    What does not belong to a run comes first. How far ahead the engine was (`handed_out`) is a matter of time.
    """
    found: list[tuple[tuple[int, int, str], str]] = []
    for line in raw.splitlines():
        try:
            event = dict(json.loads(line))
        except (TypeError, ValueError):
            found.append(((-1, -1, ""), f"no event: {line[:200]!r}"))
            continue
        event.pop("crc", None)
        run = event.get("row", -1), event.get("run", -1), event.get("model_tag") or ""
        if event.get("ev") != "handed_out":
            found.append((run, json.dumps(masked(event), sort_keys=True)))
    return [shown for _, shown in sorted(found, key=lambda each: each[0])]
