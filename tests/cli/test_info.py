"""`pytest-osmosis runs info`."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.journal import Journal, encode
from tests.cli.stored_runs import RESULTS, Cli, Stored
from tests.cli.test_show import PLANNED, answered

AT = "2026-01-01T00:00:01+00:00"
BEGAN: dict[str, Any] = {"ev": "began", "at": AT, "pid": 4711, "machine": "build7", "resumed": False}
START: dict[str, Any] = {"ev": "start", "row": 4, "run": 0, "attempt": 1, "at": AT}
DEADLINE_S = 60.0


@pytest.fixture
def unfinished(stored: Stored) -> Path:
    """An eval run of 4 planned ones: two are done, one passed, and one had begun. Its host may have begun two more."""
    events = [*answered(0, "two", 0.25), *answered(1, "2", 1.0), {"ev": "handed_out", "n": 3}, START]
    folder = stored("x-1", BEGAN, *events, results=None)
    (folder / "manifest.json").write_text(json.dumps(PLANNED))
    return folder


@pytest.mark.usefixtures("unfinished")
def test_a_killed_run_says_how_far_it_got_and_how_to_go_on(typed: Cli) -> None:
    lines = typed("runs", "info").splitlines()
    assert lines[0] == "x-1: failed"
    assert lines[1] == "  its process, 4711 on build7, was killed, or its machine failed"
    said = "\n".join(lines)
    done = "2 of 4 runs done (50%): 1 passed, 1 did not pass; 1 had begun, 1 pending"
    assert f"\nruns       {done}; up to 3 rollouts lost in flight, possibly billed\n" in said
    assert "\npass rate  0.500 of 2 measured runs, 95% interval " in said
    assert "\nscore      0.625, the mean of rewards:exact\n" in said
    assert "\ngate       pass_rate >= 0.7: not decided: the eval run did not end\n" in said
    assert lines[-1].startswith("to go on:")
    assert "--osmosis-run=x-1" in lines[-1]
    assert json.loads(typed("runs", "info", "--json"))["lost_in_flight"] == 3


def test_a_run_is_pending_then_running_and_its_numbers_grow(typed: Cli, unfinished: Path) -> None:
    journal = Journal.reopen(unfinished / "journal.jsonl")
    try:
        assert typed("runs", "info", "x-1").startswith("x-1: pending\n")
        journal.append(encode({**BEGAN, "resumed": True}))
        page = json.loads(typed("runs", "info", "x-1", "--json"))
        assert (page["status"], page["remaining_s"], page["commands"]["continue"]) == ("running", None, None)
        counts = {"planned": 4, "done": 2, "passed": 1, "failed": 1, "unmeasured": 0, "removed": 0}
        assert page["runs"] == {**counts, "unscored": 0, "in_flight": 1, "pending": 1}
        assert page["process"]["pid"] == os.getpid()
        rollout, score = ({**event, "row": 4, "run": 0} for event in answered(0, "2", 1.0))
        journal.append(encode(rollout))
        page = json.loads(typed("runs", "info", "x-1", "--json"))
        assert (page["runs"]["done"], page["runs"]["unscored"], page["runs"]["in_flight"]) == (2, 1, 0)
        assert page["remaining_s"] is not None
        journal.append(encode(score))
        said = typed("runs", "info", "x-1")
        assert "\nruns       3 of 4 runs done (75%): 2 passed, 1 did not pass; 1 pending\n" in said
        assert " so far, about " in said
        assert "pytest-osmosis runs stop x-1\n" in said
    finally:
        journal.close()


def test_the_time_between_two_sessions_does_not_count(typed: Cli, stored: Stored) -> None:
    first = [BEGAN, {**START, "at": "2026-01-01T00:00:31+00:00"}]
    second = [{**BEGAN, "at": "2026-01-03T00:00:00+00:00", "resumed": True}]
    second += [{**START, "attempt": 2, "at": "2026-01-03T00:00:05+00:00"}]
    folder = stored("x-1", *first, *second, results=None)
    (folder / "manifest.json").write_text(json.dumps(PLANNED))
    assert json.loads(typed("runs", "info", "--json"))["elapsed_s"] == 35.0
    assert "35.0 s" in typed("show", "x-1")
    journal = Journal.reopen(folder / "journal.jsonl")
    try:
        for event in ({**BEGAN, "at": datetime.now(UTC).isoformat(), "resumed": True}, {**START, "attempt": 3}):
            elapsed_s = json.loads(typed("runs", "info", "--json"))["elapsed_s"]
            assert 35.0 <= elapsed_s < 35.0 + DEADLINE_S, "pending, then running: that of this session is added"
            journal.append(encode(event))
    finally:
        journal.close()


def test_a_finished_run_has_its_numbers_from_its_results(typed: Cli, stored: Stored) -> None:
    ended = {"ev": "ended", "at": "2026-01-01T00:00:09+00:00", "status": "finished", "reason": None}
    stored("x-1", BEGAN, ended, results=RESULTS)
    page = json.loads(typed("runs", "info", "--json"))
    assert (page["schema_version"], page["status"], page["ended_at"]) == (1, "finished", ended["at"])
    assert (page["runs"]["done"], page["runs"]["pending"], page["process"]) == (2, 0, None)
    said = typed("runs", "info")
    assert said.startswith("x-1: finished\n")
    assert "  ended 2026-01-01 00:00 UTC\n" in said


def test_the_page_names_what_ran_and_when(typed: Cli, stored: Stored) -> None:
    folder = stored("x-1", BEGAN, {"ev": "ended", "at": AT, "status": "finished", "reason": None})
    inputs = {"experiment": {"rollout": "sums"}}
    (folder / "manifest.json").write_text(json.dumps({**PLANNED, "inputs": inputs}))
    said = typed("runs", "info").splitlines()
    assert said[1:5] == [
        f"  {RESULTS['config']['path']}, model demo/arithmetic, data/x.jsonl (rows: all 2 rows), n = 2",
        "  started 2026-01-01 00:00 UTC",
        "  rollout sums",
        "  ended 2026-01-01 00:00 UTC",
    ]
    page = json.loads(typed("runs", "info", "--json"))
    assert (page["model"], page["dataset"], page["rollout"]) == ("demo/arithmetic", "data/x.jsonl", "sums")
    assert (page["started_at"], page["ended_at"]) == (PLANNED["started_at"], AT)


def test_an_unknown_name_is_refused(typed: Cli, stored: Stored) -> None:
    stored("x-1")
    assert 'run "y": not found in .osmosis/runs' in typed("runs", "info", "y", fails=1)


@pytest.mark.slow
def test_watching_on_a_terminal_ends_with_the_run(unfinished: Path) -> None:
    journal = Journal.reopen(unfinished / "journal.jsonl")
    journal.append(encode({**BEGAN, "resumed": True}))
    terminal, end = pty.openpty()
    command = [sys.executable, "-m", "pytest_osmosis", "runs", "info", "--watch"]
    watching = subprocess.Popen(command, cwd=unfinished.parents[2], stdout=end, stderr=end)
    os.close(end)
    said, is_running = b"", True
    stop_at = time.monotonic() + DEADLINE_S
    try:
        while time.monotonic() < stop_at:
            try:
                said += os.read(terminal, 4096)
            except OSError:  # the program has ended
                break
            if b"running" in said and is_running:
                is_running = False
                at = "2026-01-01T00:00:09+00:00"
                journal.append(encode({"ev": "ended", "at": at, "status": "stopped", "reason": "interrupted"}))
                journal.close()
    finally:
        journal.close()
        watching.kill()
        watching.wait()
        os.close(terminal)
    assert said.count(b"\x1b[H\x1b[2J") >= 2, "it was renewed in place"
    assert b"x-1" in said
    assert b"stopped" in said.rpartition(b"\x1b[H\x1b[2J")[2]
