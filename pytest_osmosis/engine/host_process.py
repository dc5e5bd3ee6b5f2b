"""Host processes, and the one that is started while its eval is being prepared, to import what every host needs.

This module imports almost nothing, because that process starts before the rest of the package is imported.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_osmosis.processes.child import Child

if TYPE_CHECKING:
    from pytest_osmosis.engine.host_connection import HostConnection, HostEnviron, Post
    from pytest_osmosis.host.protocol import Setup

IMPORTS = "import gc; gc.disable(); from pytest_osmosis.host.main import main; "
"""Garbage is collected from the loading of user's code on: what these imports make stays, and looking at it costs more
than a tenth of a start."""
HOST = IMPORTS + "main()"
AT_START = ("PYTHON", "LD_", "DYLD_", "LC_", "LANG")
"""Prefixes of environment variables that a process reads when it starts."""


class PrestartedHost:
    """One process, for the first host that is started. All others are started as usual.

    It imports the client that most models need if anything suggests that the eval `asks` a server.
    """

    def __init__(self, *, asks: bool = True) -> None:
        self._environ = dict(os.environ)
        self._host: Child | None = None
        code = f"{IMPORTS}import pytest_osmosis.models.token_completions; main()" if asks else HOST
        with contextlib.suppress(OSError):  # the first host reports it, if it fails too
            self._host = Child(code, subprocess.DEVNULL)

    def spawn(self, name: str, setup: Setup, *, environ: HostEnviron, log: Path, post: Post) -> HostConnection:
        """Connect to this process, or to a new one if it cannot be taken."""
        from pytest_osmosis.engine.host_connection import HostConnection

        host = self.take(environ.merged)
        return HostConnection(name, setup, environ=environ, log=log, post=post, prestarted=host)

    def take(self, environ: Mapping[str, str]) -> Child | None:
        """Return this process, which is then in use; None if it is already, or must start with another environment."""
        host = self._host
        starts_as_it = not any(name.startswith(AT_START) for name, _ in self._environ.items() ^ environ.items())
        if host is None or not host.is_alive or not starts_as_it:
            return None
        self._host = None
        return host

    def close(self) -> None:
        """End the process if no host uses it. Idempotent."""
        host, self._host = self._host, None
        if host is not None:
            with host.stdout:
                host.reaped(0.0)
