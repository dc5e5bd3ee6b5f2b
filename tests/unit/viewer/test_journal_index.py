"""The index of a journal: the same fold in whatever pieces the journal grows, and conversations cut out of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.addons.viewer.open_run import JournalIndex
from pytest_osmosis.addons.viewer.stored_results import replayed
from pytest_osmosis.errors import JournalError
from pytest_osmosis.record.journal import encode, replay
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.record.run_record import Event
from tests.journals import fold

AT = "2026-01-01T00:00:00+00:00"
A, B = "rewards:a", "rewards:b"
MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "你好,\n6 * 7 \u2028?"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "tool", "content": "42"},
    {"role": "assistant", "content": "42"},
]


def began(*, resumed: bool = False) -> Event:
    return {"ev": "began", "at": AT, "pid": 1, "machine": "m", "resumed": resumed}


def loaded(a: str = "a1", b: str = "b1") -> Event:
    return {"ev": "loaded", "scorers": [A, B], "digests": {A: a, B: b}}


def rows(whole: str = "w") -> Event:
    return {"ev": "rows", "rows": {"0": ["p", "w"], "1": ["p", whole]}, "digests": {"0": "d0", "1": "d1"}}


def of_run(kind: str, row: int, attempt: int = 1, **fields: Any) -> Event:
    return {"ev": kind, "row": row, "run": 0, "attempt": attempt, **fields}


def start(row: int, attempt: int = 1) -> Event:
    return of_run("start", row, attempt, at=AT)


def rollout(row: int, attempt: int = 1, messages: Any = MESSAGES, **fields: Any) -> Event:
    return of_run("rollout", row, attempt, ms=1.0, messages=messages, n_prompt=2 if messages else 0, **fields)


def score(row: int, attempt: int = 1, **scores: float) -> Event:
    named = {f"rewards:{name}": value for name, value in scores.items()}
    return of_run("score", row, attempt, ms=1.0, scores=named, errors={}, output={})


def broken(row: int, name: str) -> Event:
    return of_run("score", row, ms=1.0, scores={}, errors={name: {"message": "no", "details": ""}}, output={})


STORY: tuple[Event, ...] = (
    began(), loaded(), rows(),
    start(0), start(1), rollout(0), score(0, a=1.0), score(0, b=0.25),
    start(1, 2), rollout(1, 2, retries=1), score(1, 2, a=1.0), score(1, a=0.0), rollout(1, 2), broken(1, B),
    {"ev": "ended", "at": AT, "status": "finished", "reason": None},
    loaded("a2"), rows(), score(0, a=0.1),  # a rescoring that did not finish
    loaded("a3"), rows(), score(0, a=0.75), score(0, b=0.75), score(1, 2, a=0.5), score(1, 2, b=0.5),
    {"ev": "rescored"},
    began(resumed=True), loaded("a3", "b2"), rows("changed"),
    start(2), score(0, b=0.125), score(1, 2, b=1.0), score(1, 2, a=0.25),
    rollout(2, messages=[], boundary="host", error="gone"), {"ev": "skip", "row": 3, "run": 0, "reason": "no budget"},
    {"ev": "ended", "at": AT, "status": "stopped", "reason": "no budget"},
)  # fmt: skip
"""A crash, a late line, a line that is there twice, two rescorings, and a session that goes on with other code."""


def pieces(data: bytes) -> Iterator[bytes]:
    """Yield the bytes in pieces that end within lines, at their ends, and after several of them."""
    at, size = 0, 1
    while at < len(data):
        yield data[at : at + size]
        at, size = at + size, size * 5 % 977


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    return tmp_path / "journal.jsonl"


def indexed(journal: Path, *events: Event) -> JournalIndex:
    """The index of a journal with these events."""
    journal.write_bytes(b"".join(map(encode, events)))
    index = JournalIndex(journal)
    index.read()
    return index


def test_an_index_follows_a_journal_that_grows_in_any_pieces(journal: Path) -> None:
    index = JournalIndex(journal)
    index.read()
    for piece in pieces(b"".join(map(encode, STORY))):
        with journal.open("ab") as file:
            file.write(piece)
        index.read()
        assert index.found == replayed(journal), f"after {journal.stat().st_size} bytes"

    whole = JournalIndex(journal)
    whole.read()

    runs = [RunId(row, 0) for row in range(4)]
    assert [index.conversation(run) for run in runs] == [whole.conversation(run) for run in runs]
    assert index.prompts == whole.prompts


def test_a_conversation_has_the_last_rollout_and_the_scores_that_count(journal: Path) -> None:
    index = indexed(journal, *STORY)

    def conversation(row: int) -> Any:
        return json.loads(index.conversation(RunId(row, 0)) or b"null")

    first, second = conversation(0), conversation(1)
    assert first["rollout"] == STORY[5]
    assert [each["scores"] for each in first["scores"]] == [{A: 0.75}, {B: 0.125}]
    assert (second["rollout"]["attempt"], second["rollout"]["retries"]) == (2, 1)
    assert [each["scores"] for each in second["scores"]] == [{B: 1.0}, {A: 0.25}]
    assert conversation(2) == {"rollout": rollout(2, messages=[], boundary="host", error="gone"), "scores": []}
    assert conversation(3) is None


def in_flight(index: JournalIndex) -> list[int]:
    ledger = index.found.ledger
    return sorted(run.row for run, record in ledger.records.items() if ledger.in_flight(record))


def test_a_run_is_in_flight_from_its_start_to_its_last_score_unless_a_killed_session_left_it(journal: Path) -> None:
    index = JournalIndex(journal)
    begun = []
    steps = ((began(), loaded(), rows()), (start(0), start(1)), (rollout(1),), (score(1, a=1.0),), (score(1, b=1.0),))
    for events in steps:
        with journal.open("ab") as file:
            file.write(b"".join(map(encode, events)))
        index.read()
        begun.append(in_flight(index))

    assert begun == [[], [0, 1], [0, 1], [0, 1], [0]]
    assert in_flight(indexed(journal, began(), loaded(), rows(), start(0), began(resumed=True), start(1))) == [1]


def test_prompts_are_excerpts_in_one_line_and_turns_are_counted_without_the_prompt(journal: Path) -> None:
    asked = [{"role": "assistant", "content": "an example"}, {"role": "user", "content": [{"text": "word " * 60}]}]
    said = [{"role": "assistant", "content": "1"}, "no message", {"role": "assistant"}]
    events = (began(), loaded(), rollout(0), rollout(1, messages=[*asked, *said]), rollout(2, messages=[]))
    index = indexed(journal, *events)

    assert index.prompts[0] == "你好, 6 * 7 ?"
    assert len(index.prompts[1]) == 120
    assert index.prompts[1].endswith("word word…")
    assert 2 not in index.prompts
    turns = {run.row: record.turns for run, record in index.found.ledger.records.items()}
    assert turns == {0: 2, 1: 2, 2: 0}


def test_a_damaged_line_is_an_error_each_time_and_what_was_before_it_stays(journal: Path) -> None:
    journal.write_bytes(encode(began()) + encode(loaded()) + encode(rollout(0)) + b"{}\n" + encode(rollout(1)))
    index = JournalIndex(journal)

    for _ in range(2):
        with pytest.raises(JournalError, match=r"journal\.jsonl:4: not a journal line"):
            index.read()
        assert list(index.found.ledger.records) == [RunId(0, 0)]


def rollout_of(index: JournalIndex, row: int) -> Any:
    return json.loads(index.conversation(RunId(row, 0)) or b"")["rollout"]


def test_conversations_are_read_from_a_journal_that_has_grown(journal: Path) -> None:
    index = indexed(journal, began(), loaded(), rollout(0))
    with journal.open("ab") as file:
        file.write(encode(rollout(1)))
    index.read()
    assert [rollout_of(index, row) for row in range(2)] == [rollout(0), rollout(1)]


def test_a_conversation_is_read_of_a_line_that_replaces_a_torn_one(journal: Path) -> None:
    whole = b"".join(map(encode, (began(), loaded(), rollout(0))))
    journal.write_bytes(whole + encode(rollout(1))[:99])
    index = JournalIndex(journal)
    index.read()
    journal.write_bytes(whole + encode(rollout(2, text="other")))
    index.read()
    assert rollout_of(index, 2) == rollout(2, text="other")


@pytest.mark.parametrize("content", [b"", b"{}\n" * 9, b" " * 10_000, b"\n".join([b"x" * 30] * 99)])
def test_a_journal_that_is_changed_in_place_has_no_conversation(journal: Path, content: bytes) -> None:
    """An editor does that, and so does `cp` of another journal over it."""
    index = indexed(journal, began(), loaded(), rollout(0), rollout(1))
    assert index.conversation(RunId(1, 0))
    journal.write_bytes(content)
    with pytest.raises(JournalError, match="the file was changed while it was read"):
        index.conversation(RunId(1, 0))


def test_a_conversation_of_which_a_byte_was_changed_is_not_shown(journal: Path) -> None:
    index = indexed(journal, began(), loaded(), rollout(0), score(0, a=1.0, b=1.0))
    lines = journal.read_bytes()
    assert b'"crc"' not in (index.conversation(RunId(0, 0)) or b"")
    for old, new in ((b'"content":"42"', b'"content":"43"'), (b'{"rewards:a":1.0', b'{"rewards:a":0.0')):
        journal.write_bytes(lines.replace(old, new))
        with pytest.raises(JournalError, match="the file was changed while it was read; open the eval run again"):
            index.conversation(RunId(0, 0))


def test_a_damaged_line_that_may_be_deleted_concerns_its_own_run_alone(journal: Path) -> None:
    """Another line decides about the others: without one of them, whole sessions would be passed over."""
    whole = fold(STORY).records
    for number, event in enumerate(STORY):
        lines = list(map(encode, STORY))
        lines[number] = lines[number][:-9] + b"x" + lines[number][-8:]
        journal.write_bytes(b"".join(lines))
        with pytest.raises(JournalError) as raised:
            list(replay(journal))
        if "delete that line" in str(raised.value):
            left = fold([*STORY[:number], *STORY[number + 1 :]]).records
            assert {run for run in whole if left.get(run) != whole[run]} <= {RunId.of(event)}
        else:
            assert "row" not in event


@pytest.mark.parametrize("fields", [{"run": 0}, {"row": 0, "run": {}}, {"row": 0, "run": 0, "attempt": "x", "at": ""}])
def test_an_event_of_an_unknown_kind_is_passed_over(journal: Path, fields: Event) -> None:
    index = indexed(journal, began(), loaded(), rollout(0), {"ev": "later", **fields})
    assert index.found == replayed(journal)
    assert len(index.found.session_ms) == 1
