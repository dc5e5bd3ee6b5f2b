"""Host processes, and the one that is started while its eval is being prepared, to import what every host needs.

This module imports almost nothing, because that process starts before the rest of the package is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_osmosis.processes.guard import GUARD

if TYPE_CHECKING:
    from pytest_osmosis.engine.host_connection import HostConnection, Post
    from pytest_osmosis.host.protocol import Setup

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
BOOT = (
    "import sys; sys.path.append(sys.argv.pop()); from pytest_osmosis.host.fast_exit import register; register(); "
    "from pytest_osmosis.host.main import main; {}main()"
)
AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG")
"""Prefixes of environment variables that a process reads when it starts."""


def started(
    module: str | None, stderr: IO[bytes] | int, *, cwd: str | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that imports `module` and waits for its `setup`. Raises `OSError` if it cannot be started.

    It leads a process group, which ends with this process.
    """
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT.format(f"import {module}; " if module else ""), PACKAGE_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env=None if environ is None else dict(environ),
        start_new_session=True,
    )
    GUARD.watch(process.pid)
    return process


class PrestartedHost:
    """One process, for the first host that is started. All others are started as usual."""

    def __init__(self) -> None:
        self._environ = dict(os.environ)
        self._process: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # the first host reports it, if it fails too
            self._process = started("pytest_osmosis.models.light", subprocess.DEVNULL)

    def spawn(self, name: str, setup: Setup, *, environ: Mapping[str, str], log: Path, post: Post) -> HostConnection:
        """Connect to this process, or to a new one if it is in use or must start with another environment."""
        from pytest_osmosis.engine.host_connection import HostConnection

        process = self._process
        if process is None or not _is_alive(process) or not self._may_become(environ):
            return HostConnection(name, setup, environ=environ, log=log, post=post)
        self._process = None
        return HostConnection(name, setup, environ=environ, log=log, post=post, prestarted=process)

    def _may_become(self, environ: Mapping[str, str]) -> bool:
        changed = dict(self._environ.items() ^ environ.items())
        return not any(name.startswith(AT_START) for name in changed)

    def close(self) -> None:
        """End the process if no host uses it. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
        GUARD.forget(process.pid)
        with process:  # closes the pipes and waits
            pass


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Return True if a process has not ended. One that has keeps its id until it is reaped."""
    if process.returncode is not None:
        return False
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
