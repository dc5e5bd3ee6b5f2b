"""The rollouts and scores of a journal that rescoring uses."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.datasets import Content
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import encode
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import RewardError, RunNotes, RunRecord
from pytest_osmosis.record.stored_rollouts import Resumption, StoredProgress, StoredRollouts, StoredScore

F, G = "rewards:f", "rewards:g"


def loaded(**digests: str) -> dict[str, Any]:
    named = {f"rewards:{name}": digest for name, digest in digests.items()}
    return {"ev": "loaded", "scorers": list(named), "digests": named}


def rows(*contents: str) -> dict[str, Any]:
    """Row 0, 1, ...: "prompt whole"."""
    digests = {str(row): f"{row:016x}" for row in range(len(contents))}
    return {"ev": "rows", "rows": {row: contents[int(row)].split() for row in digests}, "digests": digests}


def rollout(row: int = 0, attempt: int = 1, said: str = "hi", **more: Any) -> dict[str, Any]:
    messages = [{"role": "assistant", "content": said}]
    fields = {"attempt": attempt, "ms": 5.0, "messages": messages, "n_prompt": 0}
    return {"ev": "rollout", "row": row, "run": 0, **fields, **more}


def score(name: str, value: float, row: int = 0, attempt: int = 1, **more: Any) -> dict[str, Any]:
    fields = {"attempt": attempt, "ms": 2.0, "scores": {name: value}, "errors": {}, "output": {}}
    return {"ev": "score", "row": row, "run": 0, **fields, **more}


BEGAN = {"ev": "began", "at": "2026-11-22T12:00:00.000+00:00", "pid": 1, "machine": "m", "resumed": False}


def journal(folder: Path, *events: Mapping[str, Any]) -> Path:
    """Write a journal, in a folder of its own."""
    path = folder / str(len(list(folder.iterdir()))) / "journal.jsonl"
    path.parent.mkdir()
    path.write_bytes(b"".join(map(encode, events)))
    return path


def stored(folder: Path, *events: Mapping[str, Any]) -> StoredRollouts:
    return StoredRollouts(journal(folder, *events))


def test_a_rollout_of_the_last_attempt_is_read_from_its_position_once_it_has_ended(tmp_path: Path) -> None:
    begin = (loaded(f="a"), rows("p w", "q v"), rollout())
    again = {"ev": "start", "row": 0, "run": 0, "attempt": 2}

    found = stored(tmp_path, *begin, rollout(1, said="there"))
    twice = stored(tmp_path, *begin, score(F, 0.5), rollout(attempt=2, said="no"), score(F, 0.5))

    assert found.rollout(RunId(1, 0))["messages"][0]["content"] == "there"
    assert (RunId(0, 0) in found, RunId(2, 0) in found, found.n_rolled) == (True, False, 2)
    assert found.contents == {0: Content("p", "w"), 1: Content("q", "v")}
    assert twice.rollout(RunId(0, 0))["messages"][0]["content"] == "no"
    assert twice.scores(RunId(0, 0), {F: "a"}, "w") == {}
    assert RunId(0, 0) not in stored(tmp_path, *begin, again)
    assert not StoredProgress(journal(tmp_path, *begin, again)).events(RunId(0, 0))


def test_what_a_resumed_session_keeps_and_what_is_left(tmp_path: Path) -> None:
    lost = [rollout(row, error="x", details="", boundary=b) for row, b in ((1, "provider"), (2, "agent"))]
    begun = {"ev": "start", "row": 4, "run": 0, "attempt": 1}
    events = [BEGAN, loaded(f="a"), rows(*["p w"] * 6), rollout(), score(F, 0.5), *lost, rollout(3), begun]
    progress, runs = StoredProgress(journal(tmp_path, *events)), [RunId(row, 0) for row in range(6)]

    def found(resumption: Resumption) -> tuple[list[bool], list[bool]]:
        return [resumption.is_kept(run) for run in runs], [resumption.is_left(run) for run in runs]

    assert found(Resumption(progress)) == (
        [True, False, True, True, False, False],
        [False, True, False, True, True, True],
    )
    kept, _ = found(Resumption(progress, retries_failed=True))
    assert kept == [True, False, False, True, False, False]


def test_a_function_scores_again_what_a_judge_or_a_host_kept_it_from_or_all_that_it_failed(tmp_path: Path) -> None:
    progress = StoredProgress(journal(tmp_path))
    errors = {F: RewardError("401", boundary="provider"), G: RewardError("no")}
    record = RunRecord(RunId(0, 0), scorer_errors=errors)
    assert Resumption(progress).scored_again(record) == {F}
    assert Resumption(progress, retries_failed=True).scored_again(record) == {F, G}
    assert Resumption(progress, retries_failed=True).scored_again(record._replace(boundary="agent")) == set()


@pytest.mark.parametrize("read", [StoredRollouts, StoredProgress])
def test_a_row_counts_as_it_was_when_it_was_first_rolled_out(tmp_path: Path, read: type[StoredRollouts]) -> None:
    sessions = (
        *(BEGAN, loaded(f="a"), rows("p w", "q v"), rollout(), score(F, 1.0)),
        *(loaded(f="a"), rows("p w2", "killed v2")),
        *(BEGAN, loaded(f="a"), rows("p w3", "r v3"), rollout(1), score(F, 1.0, 1)),
        *(loaded(f="a"), rows("p w4", "s v4"), {"ev": "rescored"}),
    )

    assert read(journal(tmp_path, *sessions)).contents == {0: Content("p", "w"), 1: Content("r", "v3")}


def test_a_score_belongs_to_its_row_and_not_to_a_rescoring_that_was_killed_before(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        *(BEGAN, loaded(f="a"), rows("p w"), rollout()),
        *(loaded(f="a"), rows("p killed")),
        *(BEGAN, loaded(f="a"), score(F, 1.0)),
    )

    assert set(found.scores(RunId(0, 0), {F: "a"}, "w")) == {F}
    assert found.scores(RunId(0, 0), {F: "a"}, "killed") == {}


def test_a_score_is_found_by_its_code_and_its_row_with_its_reason_and_its_judges(tmp_path: Path) -> None:
    decided_later = (loaded(f="b", g="c"), rows("p changed"), score(F, 0.7), score(G, 0.1))
    found = stored(tmp_path, loaded(f="a"), rows("p w"), rollout(), score(F, 0.5), *decided_later)

    assert found.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(0.5, 2.0)}
    changed = {F: StoredScore(0.7, 2.0), G: StoredScore(0.1, 2.0)}
    assert found.scores(RunId(0, 0), {F: "b", G: "c"}, "changed") == changed
    assert found.scores(RunId(0, 0), {F: "b"}, "w") == {}
    assert found.scores(RunId(0, 0), {F: "c"}, "changed") == {}
    assert found.contents == {0: Content("p", "w")}, "the rows as they were rolled out"

    counts = {"calls": 1, "retries": 0, "uncounted": 0, "usage": {"input_tokens": 9}}
    judge: Any = {"model": "j", "base_url": None, **counts}
    told = score(F, 0.5, reasons={F: "close"}, metrics={F: {"f1": 0.5}}, judges=[judge])
    explained = stored(tmp_path, loaded(f="a"), rows("p w"), rollout(), told)

    notes = RunNotes({F: {"f1": 0.5}}, {F: "close"})
    assert explained.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(0.5, 2.0, notes, [judge])}


def test_the_removal_of_a_run_is_found_too_and_a_failure_to_score_is_not(tmp_path: Path) -> None:
    removed = {**score(F, 0.0, scores={}, removed=True), "name": F}
    failed = score(F, 0.0, 1, scores={}, errors={F: {"message": "no", "details": ""}})
    found = stored(tmp_path, loaded(f="a"), rows("p w", "q w"), rollout(), rollout(1), removed, failed)

    assert found.scores(RunId(0, 0), {F: "a"}, "w") == {F: StoredScore(None, 2.0)}
    assert found.scores(RunId(1, 0), {F: "a"}, "w") == {}


def test_a_run_without_a_rollout_has_the_reason_of_the_session_that_did_not_make_it(tmp_path: Path) -> None:
    skip = {"ev": "skip", "row": 1, "run": 0}
    found = stored(
        tmp_path,
        *(BEGAN, loaded(f="a"), rows("p w", "q v"), rollout(), {**skip, "reason": "the limit"}),
        *(loaded(f="b"), {**skip, "reason": "no rollout is stored (the limit)"}, {"ev": "rescored"}),
    )

    assert found.records[RunId(1, 0)].skip_reason == "the limit"


def test_a_row_that_is_not_stored_is_an_error_of_its_rollout(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="the rollout of row0-run0 is stored, but not its row"):
        stored(tmp_path, loaded(f="a"), rollout())

    with pytest.raises(JournalError, match="row1-run0 is stored, but not its row"):
        StoredProgress(journal(tmp_path, BEGAN, loaded(f="a"), rows("p w"), rollout(1)))


def test_the_duration_is_that_of_the_sessions_without_the_time_between(tmp_path: Path) -> None:
    days = [f"2026-01-0{day}T00:00:" for day in (1, 2)]
    events = [
        event
        for row, day in enumerate(days)
        for event in ({**BEGAN, "at": f"{day}00+00:00"}, loaded(f="a"), rows("p w", "q v"),
                      {"ev": "start", "row": row, "run": 0, "attempt": 1, "at": f"{day}10+00:00"},
                      rollout(row, at=f"{day}13+00:00"),
                      {"ev": "ended", "at": f"{day}15+00:00", "status": "finished", "reason": None})
    ]  # fmt: skip

    assert stored(tmp_path, *events).took_ms == 30_000


def test_what_a_rescoring_selects_was_not_rolled_out(tmp_path: Path) -> None:
    first, second = ({**loaded(f="a"), "result_facts": {"selected": [[row, 1, 1]]}} for row in (1, 2))
    found = stored(tmp_path, BEGAN, first, rows("p w"), rollout(), second, {"ev": "rescored"}, BEGAN, second)
    assert found.selected == [[1, 1, 1], [2, 1, 1]]
