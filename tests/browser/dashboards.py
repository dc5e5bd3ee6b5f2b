"""Reports, made by our command in a process of its own: the event loop of the browser is in this one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.cli.dashboards import DEADLINE_S


def write_report(root: Path, path: Path, runs: Sequence[str]) -> Path:
    """Return the report on these eval runs of the workspace `root`, written by `pytest-osmosis html`."""
    command = [sys.executable, "-m", "pytest_osmosis", "html", *runs, "-o", str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return path
