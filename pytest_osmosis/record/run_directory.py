"""The layout of a run directory: the files that one eval run leaves behind."""

from __future__ import annotations

from pathlib import Path

RUNS = Path(".osmosis", "runs")
"""The folder of run directories in a workspace, unless `[output] dir` names another."""
ALL_RESULTS = "*/results*.json"
"""The pattern of all results files in a folder of run directories, replaced and partial ones included."""


class RunDirectory:
    """The directory of one eval run, named by eval, start time and a random suffix.

    - `manifest`: the config, options and plan of the eval run
    - `journal`: the events of the runs
    - `rows`: the rows of a verifiers environment, which only its code knows
    - `exchanges`: the exchanges with models (`cassettes`), if the command records them
    - `partial_results`: the results of a rescoring that was partial or stopped, and so does not replace `results`
    - `lock`: the process that writes the eval run (`run_lock`)
    - `submission`: the request of `pytest-osmosis submit`, if that started the eval run
    - `session_log`: the output of pytest in an eval run that was submitted
    - `stop_request`: a file that lets the engine begin no further run, written by `pytest-osmosis runs stop`
    - `host_log`: the output of user code that belongs to no run
    - `artifacts`: the folder for files that user code writes
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name
        self.manifest = path / "manifest.json"
        self.journal = path / "journal.jsonl"
        self.rows = path / "rows.jsonl"
        self.exchanges = path / "exchanges.jsonl"
        self.results = path / "results.json"
        self.partial_results = path / "results.partial.json"
        self.lock = path / "lock"
        self.submission = path / "submitted.json"
        self.session_log = path / "session.log"
        self.stop_request = path / "stop"
        self.host_log = path / "host.log"
        self.artifacts = path / "artifacts"
