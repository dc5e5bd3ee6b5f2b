"""The workspace of hostile tests: it keeps what commands print, and finds what they write."""

from __future__ import annotations

import hashlib
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.plugin.in_process import DEADLINE_S, run_command, run_pytest
from tests.plugin.workspaces import PYTEST, WITHOUT_OTHERS, Shell, Workspace

CONFIG = "--osmosis-config=configs/eval/x.toml"
API_KEY = "sk-hostile-9f3b7c2e51d84a06"
"""The value of OPENAI_API_KEY in every hostile workspace. No text that a test expects contains it."""
PLAIN_AND_XDIST = pytest.mark.parametrize("hostile", [[], ["-n2"]], indirect=True, ids=["plain", "-n2"])
"""Runs a test in one process and under xdist, which carries ids and reports from process to process."""
IGNORED_FOLDERS = {"__pycache__", ".git"}


class Artefact(NamedTuple):
    """Something that a command printed or wrote."""

    name: str
    content: bytes
    printed: bool
    """True for standard output and standard error, which terminals and CI runners interpret."""


class HostileWorkspace(Workspace):
    """A workspace with an API key in its environment. Tests add other secrets with `secret`."""

    def __init__(
        self,
        shell: Shell,
        arguments: list[str],
        monkeypatch: pytest.MonkeyPatch,
        captured: pytest.CaptureFixture[bytes],
    ) -> None:
        self._monkeypatch = monkeypatch
        self._captured = captured
        self._written: dict[Path, bytes] = {}
        self._printed: list[Artefact] = []
        self.secrets: dict[str, str] = {}
        super().__init__(shell, arguments)
        self.secret("OPENAI_API_KEY", API_KEY)

    def secret(self, variable: str, value: str) -> None:
        """Set an environment variable whose value must not be printed or written."""
        self.secrets[variable] = value
        self._monkeypatch.setenv(variable, value)

    def write(self, path: str, text: str) -> Path:
        """Write an input: the search leaves it out while nobody changes it."""
        file = super().write(path, text)
        self._keep(file)
        return file

    def write_bytes(self, path: str, content: bytes) -> Path:
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
        self._keep(file)
        return file

    def run(self, *args: str, stdin: bytes | None = None, exits: int | None = None) -> pytest.RunResult:
        """Run `pytest <args>` in the root, and keep what it prints: in this process, unless there are workers."""
        if self.distributed:
            result = self.run_process(*args, stdin=stdin)
        else:
            result = self._here(lambda: run_pytest(self.root, [*WITHOUT_OTHERS, *self.plugins, *args], stdin))
        assert exits in (None, result.ret), f"{result.stdout}\n{result.stderr}"
        return result

    def run_process(self, *args: str, stdin: bytes | None = None, timeout: float = DEADLINE_S) -> pytest.RunResult:
        """Run the same in a process of its own.

        `timeout` guards against hangs, in seconds. It is no measure: a loaded machine may be slow.
        """
        return self.command(*PYTEST, *self.plugins, *self.arguments, *args, stdin=stdin, timeout=timeout)

    def cli(self, *args: str) -> pytest.RunResult:
        """Run `pytest-osmosis <args>` in the root and in this process, and keep what it prints."""
        return self._here(lambda: run_command(self.root, args))

    def command(self, *words: str, stdin: bytes | None = None, timeout: float = DEADLINE_S) -> pytest.RunResult:
        began = time.monotonic()
        done = subprocess.run(
            words, cwd=self.root, input=stdin or b"", capture_output=True, timeout=timeout, check=False
        )
        self._keep_printed(done.stdout, done.stderr)
        out, err = (content.decode(errors="replace").splitlines() for content in (done.stdout, done.stderr))
        return pytest.RunResult(done.returncode, out, err, time.monotonic() - began)

    def _here(self, run: Callable[[], pytest.RunResult]) -> pytest.RunResult:
        self._captured.readouterr()
        result = run()
        self._keep_printed(*self._captured.readouterr())
        return result

    def _keep_printed(self, out: bytes, err: bytes) -> None:
        number = len(self._printed) // 2 + 1
        for stream, content in (("stdout", out), ("stderr", err)):
            self._printed.append(Artefact(f"{stream} of command {number}", content, printed=True))

    def show_everything(self, *runs: str, of: str = "latest") -> None:
        """Print these runs of an eval run, its page, and the list of eval runs, as text and as JSON."""
        pages = [["show", of, run, *full] for run in runs for full in ([], ["--full"], ["--json"])]
        for words in [*pages, ["show", of, "--all"], ["show", of, "--failed", "--json"], ["runs"], ["runs", "--json"]]:
            assert self.cli(*words).ret == 0, words

    def artefacts(self) -> list[Artefact]:
        """Return what commands printed, and every file in the workspace that is not an unchanged input."""
        files = [
            Artefact(str(path.relative_to(self.root)), path.read_bytes(), printed=False)
            for path in sorted(self.root.rglob("*"))
            if path.is_file() and not IGNORED_FOLDERS & set(path.parts) and not self._is_input(path)
        ]
        return self._printed + files

    def _keep(self, file: Path) -> None:
        self._written[file] = hashlib.sha256(file.read_bytes()).digest()

    def _is_input(self, path: Path) -> bool:
        kept = self._written.get(path)
        return kept is not None and kept == hashlib.sha256(path.read_bytes()).digest()
