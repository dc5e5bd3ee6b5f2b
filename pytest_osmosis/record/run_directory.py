"""The layout of a run directory: the files that one eval run leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

RUNS = Path(".osmosis", "runs")
"""The folder of run directories in a workspace, unless `[output] dir` names another."""
ALL_RESULTS = "*/results*.json"
"""The pattern of all results files in a folder of run directories, replaced and partial ones included."""


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """The directory of one eval run."""

    path: Path

    @property
    def name(self) -> str:
        """The name of the eval run: eval, start time and a random suffix."""
        return self.path.name

    @property
    def manifest(self) -> Path:
        return self.path / "manifest.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def results(self) -> Path:
        return self.path / "results.json"

    @property
    def partial_results(self) -> Path:
        """The results of a rescoring that does not replace `results`, because it was partial or stopped."""
        return self.path / "results.partial.json"

    @property
    def host_log(self) -> Path:
        """The output of user code that belongs to no run."""
        return self.path / "host.log"

    @property
    def artifacts(self) -> Path:
        """The folder for files that user code writes."""
        return self.path / "artifacts"
