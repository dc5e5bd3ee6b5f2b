"""Decisions of the engine that only one kind of eval, host or end meets."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_osmosis.datasets import Content
from pytest_osmosis.engine.engine import Close
from pytest_osmosis.engine.job import Bounds, ResumeJob, ScoreInputs
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import Journal
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress
from tests.engine.stepped import Make, SteppedEngine

RUN = RunId(0, 0)


def test_whoever_waits_for_the_code_of_an_engine_that_breaks_is_told_why(tmp_path: Path) -> None:
    loop = SteppedEngine(tmp_path).loop
    loop.inbox.put(Close(0.0))
    loop._fail(ValueError("a bug"))
    assert loop.loaded.is_set()
    assert str(loop.refused) == "pytest-osmosis failed, please report it: ValueError: a bug"
    loop.close_journal()


def test_an_engine_that_is_to_end_starts_no_host(make: Make) -> None:
    stepped = make()
    stepped.loop.hosts.release()
    stepped.loop.hosts.start()
    assert stepped.hosts == []
    stepped.engine.submit(stepped.runs)


def test_answers_of_a_store_do_not_count_as_sent(make: Make) -> None:
    stepped = make().begin()
    for fields in ({}, {"stored": True}, {}):
        stepped.host("host").say("exchange", RUN, **fields)
    stepped.turn()
    assert stepped.loop.exchanges.n_sent == 2


def test_a_request_that_has_waited_for_its_retry_waits_no_more(make: Make) -> None:
    stepped = make().begin()
    host = stepped.host("host")
    host.starts(RUN)
    for waits, n_retrying in ((True, 1), (False, 0)):
        stepped.after(host.say, "retry", RUN, waits=waits)
        assert stepped.loop.table.states[RUN].retrying == n_retrying


def test_runs_that_are_scored_together_are_rolled_out_in_one_host(make: Make) -> None:
    stepped = make(4, scorers={"whole": False}, grouped=["whole"], n=2, hosts=2, batch_size=2)
    stepped.runs = [RunId(row, run) for row in range(2) for run in range(2)]
    stepped.begin()
    rows = [{run.row for run in host.runs()} for host in stepped.hosts]
    assert (rows[0] | rows[1], rows[0] & rows[1]) == ({0, 1}, set())


def test_a_function_alone_fails_if_it_cannot_be_interrupted(make: Make) -> None:
    stepped = make(1, scorers={"judge": False}).begin()
    host = stepped.host("host")
    host.rolls_out(RUN)
    host.say("scoring", RUN, name="judge")
    stepped.after(host.say, "stalled", RUN, stack="File ...")
    assert host.killed
    assert [list(event["errors"]) for event in stepped.events("score")] == [["judge"]]


def test_rollouts_that_began_under_a_higher_limit_may_be_in_flight(make: Make) -> None:
    stepped = make(30, batch_size=6).begin()
    host = stepped.host("host")
    host.starts(*host.runs()[:3])
    stepped.loop.hosts.shares.limit(1)
    for _ in range(2):
        stepped.turn()
        host.heeds_limits()
    stepped.turn()
    assert (stepped.limits(), stepped.loop.most_in_flight) == ([1], 3)


def test_a_run_that_its_grader_removes_adds_nothing_to_the_scores(make: Make) -> None:
    stepped = make(2).begin()
    stepped.after(stepped.host("host").rolls_out, *stepped.runs)
    removed = {"scores": {}, "errors": {}, "output": {}, "removed": True, "name": "exact"}
    stepped.after(stepped.host("scorer").say, "score", RUN, ms=1.0, **removed)
    progress = stepped.loop.recorder.reports.progress
    assert (progress.removed, progress.score) == (1, 0.0)


def test_an_eval_that_is_decided_has_finished_without_a_reason(make: Make) -> None:
    stepped = make().begin()
    stepped.engine.stop("decided", "the gate fails")
    stepped.end()
    [ended] = stepped.events("ended")
    assert (ended["status"], ended["reason"], ended["stop"]["text"]) == ("finished", None, "the gate fails")


def test_rollouts_that_a_full_disk_does_not_take_are_counted_at_the_end(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Journal, lines: bytes) -> None:
        raise JournalError("no space left")

    stepped = make().begin()
    monkeypatch.setattr(Journal, "append", full)
    stepped.after(stepped.host("host").rolls_out, RUN)
    stepped.end()
    lost = "1 rollout that ended is not stored, so resuming makes it again; free some space"
    assert f"no space left; {lost}" in stepped.engine.notices.texts


def test_a_stored_run_with_its_scores_is_reported_even_if_nothing_was_done_for_it(make: Make, tmp_path: Path) -> None:
    inputs = ScoreInputs(dict.fromkeys(range(2), Content("prompt", "row")))
    first = make(2, score_inputs=inputs).begin()
    first.after(first.host("host").rolls_out, RUN)
    first.after(first.host("scorer").scores, RUN)
    first.end()
    resumption = Resumption(StoredProgress(tmp_path / "journal.jsonl"))
    resume = ResumeJob(resumption, n_kept=1, shows=lambda record, rule: True, on_change=lambda: None)
    second = make(2, score_inputs=inputs, resume=resume)
    second.engine.submit(second.runs)
    second.end()
    assert {run: outcome.kind for run, outcome in second.told} == {RUN: "passed", RunId(1, 0): "skipped"}


def test_no_further_run_begins_while_judges_may_still_use_what_is_left(make: Make) -> None:
    stepped = make(
        3, batch_size=1, scorers={"rubric": False}, bounds=Bounds(math.inf, "some", 100, judged=True)
    ).begin()
    host = stepped.host("host")
    [first] = host.runs()
    host.starts(first)
    stepped.after(host.rolls, first, usage={"input_tokens": 45, "output_tokens": 0})
    assert host.runs() == [first]
