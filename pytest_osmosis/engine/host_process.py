"""Host processes, and the one that is started while its eval is being prepared, to import what every host needs.

This module imports almost nothing, because that process starts before the rest of the package is imported.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pytest_osmosis.processes.guard import GUARD

if TYPE_CHECKING:
    from pytest_osmosis.engine.host_connection import HostConnection, HostEnviron, Post
    from pytest_osmosis.host.protocol import Setup

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
BOOT = (
    "import gc, sys; gc.disable(); sys.path.append(sys.argv.pop()); "
    "from pytest_osmosis.host.fast_exit import register; register(); "
    "from pytest_osmosis.host.main import main; {}main()"
)
"""Garbage is collected from the loading of user's code on: what these imports make stays, and looking at it costs more
than a tenth of a start."""
EXIT_S = 2.0
"""A host whose pipe has ended gets this long to end."""
LOOK_S = 0.02
"""The time between two looks whether it has."""
AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG")
"""Prefixes of environment variables that a process reads when it starts."""


def started(
    module: str | None, stderr: IO[bytes] | int, *, cwd: str | None = None, environ: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that imports `module` and waits for its `setup`. Raises `OSError` if it cannot be started.

    It leads a process group, which ends with this process.
    """
    boot = BOOT.format(f"import {module}; " if module else "")
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", boot, PACKAGE_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env=None if environ is None else dict(environ),
        start_new_session=True,
    )
    GUARD.watch(process.pid)
    return process


def kill_group(process: subprocess.Popen[bytes]) -> None:
    """End a host and all processes that it started, now."""
    if process.returncode is not None:
        return  # its id may belong to another process by now
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def reaped(process: subprocess.Popen[bytes]) -> int:
    """Return the exit status of a host whose pipe has ended, after ending its whole group."""
    end = time.monotonic() + EXIT_S
    while time.monotonic() < end and not os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG):
        time.sleep(LOOK_S)
    kill_group(process)  # user code may have closed the pipe of a host that lives
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    kill_group(process)
    GUARD.forget(process.pid)
    return process.wait()


class PrestartedHost:
    """One process, for the first host that is started. All others are started as usual.

    It imports the client that most models need, unless nothing suggests that the eval `asks` a server.
    """

    def __init__(self, *, asks: bool = True) -> None:
        self._environ = dict(os.environ)
        self._host: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):  # the first host reports it, if it fails too
            self._host = started("pytest_osmosis.models.light" if asks else None, subprocess.DEVNULL)

    def spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> HostConnection:
        """Connect to this process, or to a new one if it cannot be taken."""
        from pytest_osmosis.engine.host_connection import HostConnection

        host = self.take(environ.merged)
        return HostConnection(name, setup, environ=environ, log=log, post=post, prestarted=host)

    def take(self, environ: Mapping[str, str]) -> subprocess.Popen[bytes] | None:
        """Return this process, which is then in use; None if it is already, or must start with another environment."""
        host = self._host
        if host is None or not is_alive(host) or not self._may_become(environ):
            return None
        self._host = None
        return host

    def _may_become(self, environ: Mapping[str, str]) -> bool:
        changed = dict(self._environ.items() ^ environ.items())
        return not any(name.startswith(AT_START) for name in changed)

    def close(self) -> None:
        """End the process if no host uses it. Idempotent."""
        process, self._host = self._host, None
        if process is None:
            return
        kill_group(process)
        GUARD.forget(process.pid)
        with process:  # closes the pipes and waits
            pass


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    """Return True if a process has not ended. One that has keeps its id until it is reaped."""
    if process.returncode is not None:
        return False
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is None
