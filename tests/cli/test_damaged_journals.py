"""Every command that reads a journal stops at a line of which a byte was changed, and names it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks.viewer_runs import SyntheticRun, write_run
from pytest_osmosis.record.journal import replay
from tests.cli.stored_runs import Cli

COMMANDS = (
    *("show x", "show x row0-run0", "show x row0", "show x --json", "runs export x", "html x"),
    *("runs export x --format=jsonl", "runs export x --format=prime -o prime"),
    *("runs compare x y", "runs compare y x --json"),
)


@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_changed_score_is_no_score(typed: Cli, tmp_path: Path, killed: bool) -> None:
    for name in ("x", "y"):
        write_run(tmp_path, SyntheticRun(name, rows=2, n=1), until=99 if killed else None)
    for command in COMMANDS:
        typed(*command.split())
    journal = tmp_path / ".osmosis/runs/x/journal.jsonl"
    number = [event["ev"] for event in replay(journal)].index("score") + 1
    changed, n = re.subn(rb'("scores":\{"[^"]+":)(0|1)', rb"\g<1>9", journal.read_bytes(), count=1)
    assert n == 1
    journal.write_bytes(changed)

    for command in COMMANDS:
        said = typed(*command.split(), fails=1)
        line = f".osmosis/runs/x/journal.jsonl:{number}: not a journal line: "
        assert f"{line}its checksum (crc) does not match its bytes; the file was damaged; delete that line" in said, (
            command
        )
    if killed:
        assert "unreadable" in typed("runs")
