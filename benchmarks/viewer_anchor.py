"""The same conversations in a report of pytest-html, as an anchor for our figures.

Each run is a test that prints its conversation, and fails if the run did not pass.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROW = "#results-table tbody.results-table-row"
LAST_RUN = "#results-table tbody.results-table-row:last-of-type .col-result"
LAST_LOG = "#results-table tbody.results-table-row:last-of-type .extras-row:not(.hidden) .log"
TESTS = """
import json
import pytest

def conversations():
    scores = {}
    with open(JOURNAL, encoding="utf-8") as journal:
        for line in journal:
            event = json.loads(line)
            if event["ev"] == "rollout":
                yield json.dumps(event["messages"], indent=1, ensure_ascii=False), "error" not in event

RUNS = [pytest.param(*each, id=f"run{at}") for at, each in enumerate(conversations())]

@pytest.mark.parametrize("text, passes", RUNS)
def test_run(text, passes):
    print(text)
    assert passes
"""


def package() -> Path:
    """Return the folder that `make bench` installs pytest-html into."""
    return Path(sys.prefix) / "pytest-html"


def write_report(folder: Path, journal: Path) -> Path:
    """Return the report of a real session with one test for each rollout of the journal."""
    folder.mkdir()
    (folder / "test_runs.py").write_text(TESTS.replace("JOURNAL", repr(str(journal))), encoding="utf-8")
    (folder / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    report = folder / "anchor.html"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:osmosis", "--tb=no"]
    command += ["--no-header", "--no-summary", f"--html={report}", "--self-contained-html", "-pno:hypothesispytest"]
    environment = {**os.environ, "PYTHONPATH": str(package())}
    with (folder / "log.txt").open("wb") as log:
        subprocess.run(command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)
    return report
