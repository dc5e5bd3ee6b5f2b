"""The eval runs that the tests of views look at, their reports, and their addresses."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.cli.dashboards import DEADLINE_S

THEN, PAIRED, KILLED, NOW = "support-then", "support-paired", "support-killed", "support-now"
EVAL = "support"


@dataclass(frozen=True)
class Viewed:
    """A workspace with eval runs, and a report on `THEN` and `NOW`."""

    root: Path
    report: Path

    def address(self, view: str) -> str:
        return f"{self.report.as_uri()}#/{view}"


VIEWS = {
    "list": "",
    "runs": f"run/{NOW}",
    "statistics": f"run/{NOW}?tab=statistics",
    "slices": f"run/{NOW}?tab=slices",
    "about": f"run/{NOW}?tab=about",
    "failures": f"run/{NOW}?q=status%3Afailed&sort=worst",
    "conversation": f"run/{NOW}/row0-run0",
    "conversation in Markdown": f"run/{NOW}/row1-run1?text=markdown",
    "comparison": f"compare/{THEN}/{NOW}",
    "history": f"history/{EVAL}",
}
"""Views of the report and of the dashboard, by what they show."""


def write_report(root: Path, path: Path, runs: Sequence[str]) -> Path:
    """Return the report on these eval runs of the workspace `root`.

    Our command makes it in a process of its own: the event loop of the browser is in this one.
    """
    command = [sys.executable, "-m", "pytest_osmosis", "html", *runs, "-o", str(path)]
    done = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return path
