"""Reports and dashboards, made and served by our commands in processes of their own."""

from __future__ import annotations

import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

COMMAND = (sys.executable, "-m", "pytest_osmosis")
DEADLINE_S = 120.0
ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/#token=([\w-]+)")


def write_report(root: Path, path: Path, runs: Sequence[str], *options: str) -> Path:
    """Return the report on these eval runs of the workspace `root`, written by `pytest-osmosis html`."""
    command = [*COMMAND, "html", *runs, "-o", str(path), *options]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return path


class Dashboard:
    """`pytest-osmosis view` in a workspace, while it is entered."""

    def __init__(self, root: Path, *arguments: str) -> None:
        self._root = root
        self._command = [*COMMAND, "view", "--no-open", "--port=0", *arguments]
        self.said = ""

    def __enter__(self) -> Dashboard:
        self.process = subprocess.Popen(
            self._command, cwd=self._root, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        end = time.monotonic() + DEADLINE_S
        while not (found := ADDRESS.search(self.said)):
            assert self.process.stdout is not None
            ready, _, _ = select.select([self.process.stdout], [], [], max(0.0, end - time.monotonic()))
            read = self.process.stdout.read1(65536) if ready else b""  # type: ignore[attr-defined]
            assert read, f"the dashboard did not print its address:\n{self.said}"
            self.said += read.decode()
        self.port, self.token = int(found[1]), found[2]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.send_signal(signal.SIGINT)
        try:
            self.said += self.process.communicate(timeout=DEADLINE_S)[0].decode()
        finally:
            self.process.kill()

    @property
    def server(self) -> str:
        """The server, as "127.0.0.1:8000"."""
        return f"127.0.0.1:{self.port}"

    def address(self, view: str = "") -> str:
        """Return the address of a view, "run/NAME", with the token, as a user who was given it would open it."""
        return f"http://{self.server}/#token={self.token}" + (f"&/{view}" if view else "")
