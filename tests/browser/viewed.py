"""The eval runs that the tests of views look at, and their addresses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

THEN, PAIRED, KILLED, NOW = "support-then", "support-paired", "support-killed", "support-now"
EVAL = "support"


@dataclass(frozen=True)
class Viewed:
    """A workspace with eval runs, and a report on `THEN` and `NOW`."""

    root: Path
    report: Path

    def results(self, name: str) -> Any:
        """Return the results.json of an eval run."""
        return json.loads((self.root / ".osmosis" / "runs" / name / "results.json").read_text(encoding="utf-8"))

    def address(self, view: str) -> str:
        """Return the address of a view of the report."""
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
