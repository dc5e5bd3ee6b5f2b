"""`pytest-osmosis show` says how an eval run gets on, what ran and when."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.record.journal import Journal, encode
from tests.cli.stored_runs import RESULTS, Cli, Stored
from tests.cli.test_show import PLANNED, answered

AT = "2026-01-01T00:00:01+00:00"
BEGAN: dict[str, Any] = {"ev": "began", "at": AT, "pid": 4711, "machine": "build7", "resumed": False}
START: dict[str, Any] = {"ev": "start", "row": 4, "run": 0, "attempt": 1, "at": AT}


@pytest.fixture
def unfinished(stored: Stored) -> Path:
    """An eval run of 4 planned ones: two are done, one passed, and one had begun. Its host may have begun two more."""
    events = [*answered(0, "two", 0.25), *answered(1, "2", 1.0), {"ev": "handed_out", "n": 3}, START]
    return stored("x-1", BEGAN, *events, results=None, manifest=PLANNED)


@pytest.mark.usefixtures("unfinished")
def test_a_killed_run_says_how_far_it_got_and_how_to_go_on(typed: Cli) -> None:
    lines = typed("show").splitlines()
    assert lines[0] == "x-1: failed, 2 of 4 planned runs ended, 1 more had begun"
    assert lines[3].startswith("  its process, 4711 on build7, was killed, or its machine failed: these numbers are")
    said = "\n".join(lines)
    assert "\n  up to 3 rollouts were lost in flight, possibly billed\n" in said
    assert "\n  to resume, without running again what is stored: " in said
    assert "--osmosis-run=x-1\n" in said
    assert "\n1 of 2 runs passed (4 planned; decided by rewards:exact)\n" in said
    assert "\ngate pass_rate >= 0.7: not decided (the eval run did not end)\n" in said
    page = json.loads(typed("show", "--json"))
    assert (page["planned_runs"], page["in_flight"], len(page["runs"])) == (4, 1, 2)
    assert page["results"]["summary"]["pass_rate"] == 0.5
    assert "rewards:exact     >= 0.5  0.625  1 of 2\n" in said
    assert '\n  row3-run0  score 0.25 < 0.5: answered "two", expected "2"\n' in said
    assert typed("show", "row4-run0").startswith("x-1 row4-run0: begun, but not finished\n")


def test_a_run_is_pending_then_running_and_its_numbers_grow(typed: Cli, unfinished: Path) -> None:
    journal = Journal.reopen(unfinished / "journal.jsonl")
    try:
        assert typed("show", "x-1").startswith("x-1: pending, 2 of 4 planned runs ended, 1 more had begun\n")
        journal.append(encode({**BEGAN, "resumed": True}))
        assert "x-1: running, 2 of 4 planned runs ended, 1 more in flight\n" in typed("show", "x-1")
        page = json.loads(typed("show", "x-1", "--json"))
        assert (page["status"], page["in_flight"], page["ended_at"]) == ("running", 1, None)
        rollout, score = ({**event, "row": 4, "run": 0} for event in answered(0, "2", 1.0))
        journal.append(encode(rollout))
        journal.append(encode(score))
        said = typed("show", "x-1")
        assert said.startswith("x-1: running, 3 of 4 planned runs ended\n")
        assert "\n  written by process " in said
        assert "  the numbers are those of the runs that ended so far\n" in said
        assert "\n2 of 3 runs passed (4 planned; decided by rewards:exact)\n" in said
        assert said.endswith("pytest-osmosis runs stop x-1\n")
        assert "to resume" not in said
    finally:
        journal.close()


def test_the_time_between_two_sessions_does_not_count(typed: Cli, stored: Stored) -> None:
    first = [BEGAN, {**START, "at": "2026-01-01T00:00:31+00:00"}]
    second = [{**BEGAN, "at": "2026-01-03T00:00:00+00:00", "resumed": True}]
    second += [{**START, "attempt": 2, "at": "2026-01-03T00:00:05+00:00"}]
    stored("x-1", *first, *second, results=None, manifest=PLANNED)
    assert "35.0 s" in typed("show", "x-1")


def test_a_finished_run_has_its_numbers_from_its_results(typed: Cli, stored: Stored) -> None:
    ended = {"ev": "ended", "at": "2026-01-01T00:00:09+00:00", "status": "finished", "reason": None}
    stored("x-1", BEGAN, ended, results=RESULTS)
    page = json.loads(typed("show", "--json"))
    assert (page["status"], page["ended_at"], page["in_flight"]) == ("finished", ended["at"], 0)
    assert page["results"]["summary"]["total_runs"] == 2
    assert len(page["runs"]) == 2
    said = typed("show")
    assert said.startswith("x-1: finished")
    assert "runs stop" not in said


def test_the_page_names_what_ran_and_when(typed: Cli, stored: Stored) -> None:
    ended = {"ev": "ended", "at": AT, "status": "finished", "reason": None}
    stored("x-1", BEGAN, ended, manifest={**PLANNED, "inputs": {"experiment": {"rollout": "sums"}}})
    said = typed("show").splitlines()
    config = RESULTS["config"]["path"]
    assert said[1:3] == [
        f"  {config}, model demo/arithmetic, rollout sums, data/x.jsonl (rows: all 2 rows), n = 2",
        "  started 2026-01-01 00:00 UTC, ended 2026-01-01 00:00 UTC",
    ]
    page = json.loads(typed("show", "--json"))
    assert (page["model"], page["dataset"], page["rollout"]) == ("demo/arithmetic", "data/x.jsonl", "sums")
    assert (page["started_at"], page["ended_at"]) == (PLANNED["started_at"], AT)
