"""Starts host processes. It imports almost nothing, because the first host starts before the rest of the package."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import IO

PACKAGE_ROOT = str(Path(__file__).resolve().parents[2])
BOOT = (
    "import sys; sys.path.append(sys.argv.pop()); from pytest_osmosis.host.fast_exit import register; register(); "
    "from pytest_osmosis.host.main import main; {}main()"
)


def started(
    module: str | None,
    stderr: IO[bytes] | int,
    *,
    cwd: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start a process that imports `module` and waits for its `setup`. Raises `OSError` if no process can be had."""
    return subprocess.Popen(
        [sys.executable, "-P", "-c", BOOT.format(f"import {module}; " if module else ""), PACKAGE_ROOT],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        cwd=cwd,
        env=None if environ is None else dict(environ),
        start_new_session=True,
    )
