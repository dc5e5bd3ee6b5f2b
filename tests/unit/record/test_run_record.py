"""The fold of events into records: each event, later attempts, and independence of order."""

from __future__ import annotations

import json
from functools import partial
from hashlib import blake2b
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.record.run_record import NO_NOTES, Event, Imported, RewardError, RunRecord
from tests.journals import fold

LOADED: Event = {"ev": "loaded", "scorers": ["rewards:a", "rewards:b"], "digest": "0"}
RUN = RunId(3, 1)


def event(kind: str, attempt: int = 1, run: RunId = RUN, **fields: Any) -> Event:
    return {"ev": kind, "row": run.row, "run": run.index, "attempt": attempt, **fields}


start = partial(event, "start", at="2026-01-01T00:00:00+00:00")
handed_out: Any = partial(dict, ev="handed_out")
rollout, score = partial(event, "rollout", ms=12.5, messages=[]), partial(event, "score", ms=2.0)


def record_of(*events: Event) -> RunRecord:
    return fold([LOADED, *events]).records[RUN]


def test_a_run_is_pending_until_every_scorer_has_answered_and_its_parts_add_up() -> None:
    events = [start(), rollout(), score(scores={"rewards:a": 1.0}), score(scores={"rewards:b": 0.5}, ms=3.0)]

    records = [record_of(*events[:length]) for length in range(1, len(events) + 1)]

    assert [record.status for record in records] == ["pending", "pending", "pending", "finished"]
    assert dict(records[-1].scores) == {"rewards:a": 1.0, "rewards:b": 0.5}
    assert (records[-1].duration_ms, records[-1].scoring_ms) == (12.5, 5.0)
    both = fold([LOADED, *events, {**start(), "model_tag": "baseline"}]).records
    assert [each.status for each in both.values()] == ["finished", "pending"], "runs of a baseline have their own"


def test_scores_that_were_imported_stay_whatever_code_scores_now() -> None:
    now, later = (
        {"ev": "loaded", "scorers": ["reward", "rewards:a"], "digests": {"reward": digest, "rewards:a": digest}}
        for digest in "12"
    )
    taken = [rollout(imported={"folder": "vf", "scores": ["reward"]}), score(scores={"reward": 0.5})]
    session = [{"ev": "loaded", "scorers": ["reward"]}, *taken, BEGAN, now, score(scores={"rewards:a": 1.0})]
    before, after = fold(session).records[RUN], fold([*session, BEGAN, later]).records[RUN]
    assert (before.status, dict(before.scores)) == ("finished", {"reward": 0.5, "rewards:a": 1.0})
    assert (after.status, dict(after.scores)) == ("pending", {"reward": 0.5})
    assert after.imported == Imported("vf", ("reward",))


def test_an_error_counts_as_the_result_of_its_function_and_of_two_events_the_later_one() -> None:
    errors = {"rewards:a": {"message": "ValueError: no", "details": "Traceback ..."}}
    scored, broke, other = score(scores={"rewards:a": 1.0}), score(errors=errors), score(scores={"rewards:b": 0.5})

    found = [record_of(start(), rollout(), *two, other) for two in ((broke,), (broke, scored), (scored, broke))]

    assert [record.status for record in found] == ["finished"] * 3
    both, failed = {"rewards:a": 1.0, "rewards:b": 0.5}, {"rewards:a": RewardError("ValueError: no", "Traceback ...")}
    assert [dict(record.scores) for record in found] == [{"rewards:b": 0.5}, both, {"rewards:b": 0.5}]
    assert [dict(record.scorer_errors) for record in found] == [failed, {}, failed]


def test_a_rollout_holds_its_usage() -> None:
    usage = {"input_tokens": 7, "output_tokens": 5, "cached_input_tokens": 2}

    record = record_of(start(), rollout(usage=usage, retries=2, finish_reason="length", model="m-2026"))

    assert (record.tokens, record.retries, record.finish_reason, record.model) == (12, 2, "length", "m-2026")
    assert (record.was_answered, record_of(rollout()).was_answered) == (True, False)
    assert record_of(rollout(usage=None)).tokens is None
    assert record_of(rollout(usage={"input_tokens": 0, "output_tokens": 0})).tokens == 0


def test_answers_from_a_store_are_not_charged() -> None:
    stored = {"requests": 2, "usage": {"input_tokens": 6}}
    use = {"model": "j", "base_url": None, "calls": 3, "retries": 0, "uncounted": 0, "usage": {"input_tokens": 9}}
    mixed = record_of(
        rollout(usage={"input_tokens": 10, "output_tokens": 1}, stored=stored),
        score(scores={"rewards:a": 1.0}, judges=[{**use, "stored": stored}, use]),
    )
    unknown = record_of(rollout(usage={"input_tokens": 10}, stored={"requests": 1, "usage": None}))
    whole = record_of(rollout())

    assert (mixed.tokens, mixed.judge_tokens) == (11, 18)
    assert (mixed.stored.requests, mixed.judge_uses[0].stored.requests) == (2, 2)
    assert (mixed.charged.tokens, mixed.charged.judge_tokens) == (5, 12)
    assert whole.charged is whole, "nothing of it was stored"
    assert unknown.charged.tokens is None


def test_a_rollout_with_a_boundary_is_failed_and_a_removed_run_skipped_whatever_scores_it_has() -> None:
    record = record_of(start(), rollout(boundary="agent", error="KeyError: 'x'"))
    removed, scored = score(removed=True), score(scores={"rewards:a": 1.0})

    found = [record_of(start(), rollout(), *parts) for parts in ([removed], [removed, scored], [scored, removed])]

    assert (record.status, record.boundary, record.error) == ("failed", "agent", "KeyError: 'x'")
    assert [(each.status, each.scored) for each in found] == [("skipped", True)] * 3


@pytest.mark.parametrize(("starts", "attempt"), [([], 0), ([1], 1), ([1, 2], 2)])
def test_a_skip_leaves_any_attempt_pending_with_its_reason(starts: list[int], attempt: int) -> None:
    record = record_of(*map(start, starts), {"ev": "skip", "row": RUN.row, "run": RUN.index, "reason": "stopped"})

    assert (record.status, record.skip_reason, record.attempt) == ("pending", "stopped", attempt)


def test_a_later_attempt_starts_from_an_empty_record() -> None:
    record = record_of(start(), rollout(boundary="host", error="died"), start(2))

    assert record == RunRecord(RUN, attempt=2, repeated=True, started=True)


@pytest.mark.parametrize(
    "late",
    [start(1), rollout(1, boundary="agent", error="late"), score(1, scores={"rewards:a": 0.0})],
    ids=lambda event: str(event["ev"]),
)
def test_late_events_of_an_earlier_attempt_change_nothing(late: Event) -> None:
    events = [start(1), start(2), rollout(2), score(2, scores={"rewards:a": 1.0, "rewards:b": 1.0})]

    assert record_of(*events, late) == record_of(*events)


def test_nothing_is_scored_before_the_scorers_are_known_and_other_events_belong_to_no_run() -> None:
    ledger = fold([LOADED, {"ev": "notice", "text": "a host ended"}])

    assert fold([start(), rollout()]).records[RUN].status == "pending"
    assert (ledger.records, ledger.scorers) == ({}, ("rewards:a", "rewards:b"))


def test_lost_are_the_rollouts_that_began_or_may_have_begun_and_did_not_end() -> None:
    one, two, three = (RunId(row, 0) for row in range(3))
    killed = [handed_out(n=3), start(1, one), start(1, two), rollout(1, one)]
    assert fold(killed).most_lost == 2, "one had begun, and another was handed out"
    again = [*killed, {"ev": "began"}]
    assert fold(again).most_lost == 2
    repeated = [*again, handed_out(n=2), start(2, two), start(1, three), rollout(2, two), rollout(1, three)]
    assert fold(repeated).most_lost == 2, "the end of another attempt is no end of the first"
    host_died = [*repeated, handed_out(n=1), start(3, two), handed_out(n=0), start(4, two), rollout(4, two)]
    assert fold(host_died).most_lost == 3
    assert fold([rollout(1, one), rollout(1, one)]).most_lost == 0, "it was never handed out: its row cannot be read"


def assistant(content: object, call_id: str | None = None, arguments: str = "{}") -> dict[str, object]:
    function = {"name": "f", "arguments": arguments}
    calls = {} if call_id is None else {"tool_calls": [{"id": call_id, "function": function}]}
    return {"role": "assistant", "content": content, **calls}


def answer(*messages: object) -> str | None:
    event = {"ev": "rollout", "row": 0, "run": 0, "attempt": 1, "ms": 1.0, "messages": list(messages)}
    return fold([event]).records[RunId(0, 0)].answer


def test_the_answer_is_the_last_assistant_message_with_its_calls_but_not_their_ids() -> None:
    assert answer(assistant("a"), {"role": "user", "content": "b"}) == answer(assistant("a"))
    assert answer(assistant("b"), assistant("a")) == answer(assistant("a")) != answer(assistant("b"))
    assert answer(assistant("\ud800")) is not None
    assert answer(assistant(None, "1")) == answer(assistant(None, "2")) != answer(assistant(None, "1", "[]"))
    assert answer({"role": "user", "content": "b"}, "odd", {"role": "tool"}) is None


def test_runs_are_ordered_by_row_and_read_back_from_their_names() -> None:
    runs = [RunId(2, 0), RunId(2, 1), RunId(10, 0), RunId(12, 3, ModelTag.BASELINE)]

    assert sorted([runs[2], runs[0], runs[3], runs[1]]) == runs
    assert [RunId.named(str(run)) for run in runs] == runs
    assert [RunId.of({"ev": "start", **run.to_json()}) for run in runs] == runs
    for name in ("", "row1", "row1-run", "row1-run2-", "row1-run2-baselines", "row-run", " row1-run2"):
        assert RunId.named(name) is None


OF_ROLLOUT: dict[str, Any] = {"metrics": {"rollout": {"turns": 3.0}}, "fields": {"rollout": {"plan": ["a"]}}}


def of_a(reason: str) -> dict[str, Any]:
    return {"metrics": {"rewards:a": {"f1": 0.5}}, "reasons": {"rewards:a": reason}}


def test_notes_of_rollout_and_functions_add_up_and_a_later_score_leaves_those_of_the_rollout_alone() -> None:
    scores = [score(scores={"rewards:a": 1.0}, **of_a("close")), score(scores={"rewards:b": 0.5})]
    record = record_of(start(), rollout(**OF_ROLLOUT), *scores)

    assert record.metrics == {"rollout": {"turns": 3.0}, "rewards:a": {"f1": 0.5}}
    assert record.reasons == {"rewards:a": "close"}
    assert record.notes.to_json() == {**OF_ROLLOUT, **of_a("close"), "metrics": record.metrics}

    first = score(scores={"rewards:a": 0.0}, **of_a("wrong"))

    for later in ([score(scores={"rewards:a": 1.0})], [LOADED, {"ev": "rescored"}]):
        assert record_of(start(), rollout(**OF_ROLLOUT), first, *later).notes.to_json() == OF_ROLLOUT


def test_runs_share_equal_notes_and_a_second_attempt_has_none_of_the_first() -> None:
    one, other = (record_of(start(), rollout(), score(**of_a("same"))) for _ in range(2))

    assert one.metrics["rewards:a"] is other.metrics["rewards:a"]
    assert one.reasons["rewards:a"] is other.reasons["rewards:a"]
    assert record_of(start(), rollout(**OF_ROLLOUT), start(2), rollout(2)).notes is NO_NOTES
    assert record_of(start(), rollout(), score(scores={"rewards:a": 1.0})).notes is NO_NOTES


BEGAN: Event = {"ev": "began", "at": "2026-01-02T00:00:00+00:00", "pid": 1, "machine": "m", "resumed": True}
ENDED: Event = {"ev": "ended", "at": "2026-01-02T00:00:00+00:00", "status": "stopped", "reason": "interrupted"}
BOTH: dict[str, Any] = {"scores": {"rewards:a": 1.0, "rewards:b": 0.5}}


def loads(a: str = "1", b: str = "1") -> Event:
    return {"ev": "loaded", "scorers": ["rewards:a", "rewards:b"], "digests": {"rewards:a": a, "rewards:b": b}}


def rows(whole: str) -> Event:
    return {"ev": "rows", "rows": {"3": ["prompt", whole]}}


SESSION = (BEGAN, loads(), rows("w"), start(), rollout(**OF_ROLLOUT), score(**BOTH, **of_a("close")), ENDED)
ONLY_A: Event = {"ev": "loaded", "scorers": ["rewards:a"], "digests": {"rewards:a": "1"}}


@pytest.mark.parametrize(
    ("code", "whole", "status", "scores"),
    [
        (loads(a="2"), "w", "pending", {"rewards:b": 0.5}),
        (ONLY_A, "w", "finished", {"rewards:a": 1.0}),
        (loads(), "v", "pending", {}),
    ],
    ids=["a changed function", "a function that is gone", "a changed row"],
)
def test_a_session_that_goes_on_needs_and_keeps_no_scores_of_code_and_rows_that_changed(
    code: Event, whole: str, status: str, scores: dict[str, float]
) -> None:
    record = fold([*SESSION, BEGAN, code, rows(whole)]).records[RUN]

    assert (record.status, dict(record.scores), record.rolled) == (status, scores, True)
    assert record.notes.to_json() == OF_ROLLOUT or "rewards:a" in scores, "notes go with the score of their function"


def test_a_removal_is_decided_again_if_any_function_changed() -> None:
    removed = [BEGAN, loads(), rows("w"), start(), rollout(), score(removed=True, name="rewards:b")]

    statuses = [fold([*removed, BEGAN, loads(a=a), rows("w")]).records[RUN].status for a in ("1", "2")]

    assert statuses == ["skipped", "pending"]


def test_only_the_scores_of_a_finished_rescoring_count_in_the_session_that_follows() -> None:
    killed = [loads(a="2"), rows("w"), score(scores={"rewards:a": 0.0})]
    whole = [*killed, score(scores={"rewards:b": 0.5}), {"ev": "rescored"}]

    assert fold([*SESSION, *killed, BEGAN, loads(), rows("w")]) == fold([*SESSION, BEGAN, loads(), rows("w")])
    record = fold([*SESSION, *whole, BEGAN, loads(a="2"), rows("w")]).records[RUN]
    assert dict(record.scores) == {"rewards:a": 0.0, "rewards:b": 0.5}


def test_each_session_counts_at_once_and_only_its_own_attempts_were_repeated_after_a_crash() -> None:
    later = [*SESSION, BEGAN, loads(), rows("w"), start(2), rollout(2)]

    record = fold([*later, score(2, scores={"rewards:a": 0.0})]).records[RUN]

    assert (record.attempt, dict(record.scores), record.repeated) == (2, {"rewards:a": 0.0}, False)
    assert fold([*later, start(3), rollout(3)]).records[RUN].repeated is True
    unchanged = fold([*SESSION, BEGAN, loads(), rows("w")]).records[RUN]
    assert unchanged == fold(SESSION).records[RUN], "the scores of unchanged code and rows are kept"


@given(st.text(st.characters()), st.lists(st.just({"function": {"name": "f"}}), max_size=1))
def test_the_digest_of_an_answer_is_that_of_its_json(content: str, calls: list[Any]) -> None:
    text = json.dumps([content, [call["function"] for call in calls]], sort_keys=True)
    said = {"role": "assistant", "content": content, "tool_calls": calls}
    assert answer(said) == blake2b(text.encode(), digest_size=8).hexdigest()
