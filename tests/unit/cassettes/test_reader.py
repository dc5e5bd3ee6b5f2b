"""Answers that are found in cassettes and exchange logs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.cassettes.exchange import ROLLOUT, Asker, Run
from pytest_osmosis.cassettes.reader import AskerAnswers, CassetteReader, Stored, answer_of
from pytest_osmosis.cassettes.writer import write_cassette
from pytest_osmosis.errors import CassetteError
from tests.unit.cassettes.recording import Call, conversation, reply, user, write_log

FIRST, SECOND = Run(0, 0), Run(0, 1)


def text_of(stored: Stored | None) -> str | None:
    return None if stored is None else answer_of(stored)["reply"]["message"]["content"]


def taken(answers: AskerAnswers, *turns: tuple[int, str]) -> list[str | None]:
    return [text_of(answers.take(turn, digest)) for turn, digest in turns]


def digests(answers: AskerAnswers) -> list[str]:
    return [each.head.digest for each in answers.left]


@pytest.fixture(params=["log", "cassette"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    """Return a function that opens calls, in a log or in a cassette."""
    readers = []

    def opened(*calls: Call) -> CassetteReader:
        path = write_log(tmp_path / "log", *calls)
        if request.param == "cassette":
            path = write_cassette(tmp_path / "c.jsonl", path, [FIRST, SECOND]).path
        reader = CassetteReader.open([path])
        readers.append(reader)
        return reader

    yield opened
    for reader in readers:
        reader.close()


def test_runs_with_equal_requests_get_their_own_answers(store: Any) -> None:
    reader = store(*(conversation(run, f"{run}: a", f"{run}: b") for run in (SECOND, FIRST)))
    for run in (FIRST, SECOND):
        answers = reader.at(Asker(run, ROLLOUT))
        first, second = digests(answers)
        assert taken(answers, (1, first), (2, second)) == [f"{run}: a", f"{run}: b"]
    assert digests(reader.at(Asker(Run(0, 0, "baseline"), ROLLOUT))) == []
    assert digests(reader.at(Asker(FIRST, "rubric"))) == []
    assert reader.runs() == {FIRST, SECOND}


def test_each_answer_is_used_once_by_a_call_and_again_by_the_next(store: Any) -> None:
    reader = store(conversation(FIRST, "a"))
    for _ in range(2):
        answers = reader.at(Asker(FIRST, ROLLOUT))
        (digest,) = digests(answers)
        assert taken(answers, (1, digest), (2, digest)) == ["a", None]
        assert answers.take(1, "another") is None


def test_requests_that_come_in_another_order_find_their_answers(store: Any) -> None:
    call = Call(FIRST)
    asked = [call.asks(user(f"question {number}")) for number in range(20)]
    for number, each in enumerate(asked):
        each.answered(reply(f"answer {number}"))
    answers = store(call).at(Asker(FIRST, ROLLOUT))
    wanted = {answers.request(each)["messages"][0]["content"]: each.head.digest for each in answers.left}
    order = random.Random(5).sample(range(20), 20)
    got = [text_of(answers.take(turn, wanted[f"question {number}"])) for turn, number in enumerate(order, 1)]
    assert got == [f"answer {number}" for number in order]


def test_equal_requests_get_their_answers_in_their_order(store: Any) -> None:
    call = Call(FIRST)
    for text in ("first", "second", "third"):
        call.exchange(user("again"), text=text)
    answers = store(call).at(Asker(FIRST, ROLLOUT))
    digest = digests(answers)[0]
    assert taken(answers, (1, digest), (3, digest), (2, digest), (4, digest)) == ["first", "third", "second", None]


def test_a_refusal_is_found_too(store: Any) -> None:
    call = Call(FIRST)
    call.asks(user("too long")).refused("context_length_exceeded")
    answers = store(call).at(Asker(FIRST, ROLLOUT))
    stored = answers.take(1, digests(answers)[0])
    assert stored is not None
    assert answer_of(stored)["error"] == {"message": "context_length_exceeded", "status": 400}


def test_what_a_killed_rollout_had_asked_is_found_once(tmp_path: Path) -> None:
    """The second attempt was answered from the first, and killed earlier: its answers do not count twice."""
    calls = []
    for attempt, n_votes in ((1, 3), (2, 1)):
        call = Call(FIRST, attempt=attempt)
        votes = [call.asks(user("vote")) for _ in range(n_votes)]
        for number, vote in enumerate(votes):
            vote.answered(reply(f"vote {number}"))
        calls.append(call)
    with CassetteReader.open([write_log(tmp_path / "log", *calls)]) as reader:
        answers = reader.at(Asker(FIRST, ROLLOUT))
        assert answers.n == 3
        digest = digests(answers)[0]
        assert taken(answers, (1, digest), (2, digest), (3, digest)) == ["vote 0", "vote 1", "vote 2"]


def test_later_files_count_before_equal_exchanges_of_earlier_ones(tmp_path: Path) -> None:
    old, new = conversation(FIRST, "old"), conversation(FIRST, "new")
    paths = [write_log(tmp_path / name, call) for name, call in (("old", old), ("new", new))]
    with CassetteReader.open([tmp_path / "missing", *paths]) as reader:
        answers = reader.at(Asker(FIRST, ROLLOUT))
        assert taken(answers, (1, digests(answers)[0])) == ["new"]


def test_a_torn_last_line_is_passed_over_and_a_broken_one_is_an_error(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", conversation(FIRST, "a", "b"))
    whole = log.read_bytes()
    log.write_bytes(whole[:-20])
    with CassetteReader.open([log]) as reader:
        assert len(reader) == 1
    log.write_bytes(whole + b'{"row": 0}\n')
    with pytest.raises(CassetteError, match=r"log:4: lacks run"):
        CassetteReader.open([log])


def test_lines_that_were_laid_out_anew_are_read(tmp_path: Path) -> None:
    path = write_cassette(
        tmp_path / "c.jsonl", write_log(tmp_path / "l", conversation(FIRST, "a", asker='"x"\\')), [FIRST]
    ).path
    lines = [json.dumps(json.loads(line), indent=None, sort_keys=True) for line in path.read_text().splitlines()]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(lines) + "\n")
    for file in (path, other):
        with CassetteReader.open([file]) as reader:
            answers = reader.at(Asker(FIRST, '"x"\\'))
            assert taken(answers, (1, digests(answers)[0])) == ["a"]
