"""Answers that are found in cassettes and exchange logs, and cassettes that are refused before anything runs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.cassettes.exchange import ROLLOUT, Asker, cleaned
from pytest_osmosis.cassettes.reader import AskerAnswers, CassetteReader, Stored, answer_of, check_cassette
from pytest_osmosis.cassettes.writer import write_cassette
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.safe import dumps
from tests.raised import problems_of
from tests.unit.cassettes.recording import Call, assistant, conversation, reply, user, write_log

FIRST, SECOND = RunId(0, 0), RunId(0, 1)


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
            path = write_cassette(tmp_path / "c.jsonl", path, [FIRST, SECOND])
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
    assert digests(reader.at(Asker(RunId(0, 0, ModelTag.BASELINE), ROLLOUT))) == []
    assert digests(reader.at(Asker(FIRST, "rubric"))) == []
    assert reader.runs() == {FIRST, SECOND}


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


def test_equal_requests_get_their_answers_in_their_order_once_in_each_call(store: Any) -> None:
    call = Call(FIRST)
    for text in ("first", "second", "third"):
        call.exchange(user("again"), text=text)
    reader = store(call)
    for _ in range(2):
        answers = reader.at(Asker(FIRST, ROLLOUT))
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
        assert len([*reader.files[0].heads()]) == 1
    log.write_bytes(whole + b'{"row": 0}\n')
    with pytest.raises(CassetteError, match=r"log:4: lacks run"):
        CassetteReader.open([log])


def test_lines_that_were_laid_out_anew_are_read(tmp_path: Path) -> None:
    log = write_log(tmp_path / "l", conversation(FIRST, "a", asker='"x"\\'))
    path = write_cassette(tmp_path / "c.jsonl", log, [FIRST])
    lines = [json.dumps(json.loads(line), indent=None, sort_keys=True) for line in path.read_text().splitlines()]
    other = tmp_path / "other.jsonl"
    other.write_text("\n".join(lines) + "\n")
    for file in (path, other):
        with CassetteReader.open([file]) as reader:
            answers = reader.at(Asker(FIRST, '"x"\\'))
            assert taken(answers, (1, digests(answers)[0])) == ["a"]


RUNS = [RunId(0, 0), RunId(1, 0)]
Change = Callable[[dict[str, Any]], object]
KEY = "sk-proj-" + "Ab3" * 10


@pytest.fixture
def cassette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cassette of two runs with two turns each, on lines 2 to 5."""
    monkeypatch.chdir(tmp_path)
    log = write_log(tmp_path / "log", *(conversation(run, "a", "b") for run in RUNS))
    return write_cassette(tmp_path / "c.jsonl", log, RUNS)


def problems(path: Path) -> list[str]:
    return problems_of(CassetteError, check_cassette, path)


def edit(path: Path, line: int, change: Change) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    value = json.loads(lines[line - 1])
    change(value)
    lines[line - 1] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_good_cassette_tells_its_runs_and_a_missing_one_the_option_that_records_it(cassette: Path) -> None:
    assert check_cassette(cassette) == dict.fromkeys(RUNS, 2)
    (problem,) = problems(cassette.with_name("none.jsonl"))
    assert problem.endswith("none.jsonl: no such file; record it: --osmosis-record")


@pytest.mark.parametrize(
    ("header", "text"),
    [
        ('{"schema_version":2,"kind":"cassette"}', "has schema_version 2, and this version of pytest-osmosis reads 1"),
        ('{"schema_version":1,"kind":"exchanges"}', "is an exchange log, not a cassette"),
        ('{"row": 0}', "is not a cassette: the first line of one is"),
        ("", "is not JSON"),
        ("[]", "must be an object"),
    ],
)
def test_another_header_is_refused(cassette: Path, header: str, text: str) -> None:
    _, *lines = cassette.read_text().splitlines()
    cassette.write_text("\n".join([header, *lines]))
    (problem,) = problems(cassette)
    assert problem.startswith(f"c.jsonl:1: {text}"), problem


def test_each_broken_line_is_told(cassette: Path) -> None:
    edit(cassette, 2, lambda value: value.pop("digest"))
    edit(cassette, 3, lambda value: value.update(turn=0))
    edit(cassette, 4, lambda value: value["reply"].update(usage={"input_tokens": 1}))
    with cassette.open("a") as file:
        file.write("<<<<<<< HEAD\n{}")
    told = problems(cassette)
    assert [problem.split(": ")[0] for problem in told] == [f"c.jsonl:{line}" for line in range(2, 8)]
    assert told[0].endswith("lacks digest")
    assert told[1].endswith("turn: must be an integer of at least 1, got 0")
    assert told[2].endswith("reply.usage: lacks output_tokens")
    assert "continues turn 1, which is not on an earlier line" in told[3]
    assert told[4].endswith("resolve the merge conflict")
    record = "Record the cassette again (--osmosis-record), or get it from git again"
    assert told[5] == f"c.jsonl:7: is torn: it has no end. {record}"


def test_an_exchange_without_an_answer_or_with_two_is_refused(cassette: Path) -> None:
    edit(cassette, 2, lambda value: value.update(error={"message": "no"}))
    edit(cassette, 4, lambda value: value.pop("reply"))
    told = problems(cassette)
    assert [each for each in told if "must have either a reply or an error" in each] == [told[0], told[2]]


def prompt(value: dict[str, Any]) -> None:
    value["request"]["messages"][0]["content"] = "another question"


def answer(value: dict[str, Any]) -> None:
    value["reply"]["message"]["content"] = "another answer"


@pytest.mark.parametrize(("change", "line", "turn"), [(prompt, 2, 1), (prompt, 3, 2), (answer, 2, 2)])
def test_a_request_that_was_edited_by_hand_is_refused(cassette: Path, change: Change, line: int, turn: int) -> None:
    edit(cassette, line, change)

    (problem,) = problems(cassette)

    assert problem.startswith(f"{cassette.name}:{turn + 1}: row0-run0, rollout, turn {turn}: the digest is that of ano")


def test_digests_follow_from_what_is_stored(tmp_path: Path) -> None:
    """Requests that change their settings on the way, and that are in flight at once, have those of whole ones."""
    call = Call(RUNS[0])
    tool = {"type": "function", "function": {"name": "f"}}
    first = call.exchange(user("a"), tools=[tool], sampling={"temperature": 0.5}, seed=3)
    together = [call.asks(user("a"), first, user(text)) for text in "bc"]
    for each in together:
        each.answered(reply("42"))
    call.asks(user("a"), first, user("b"), assistant("42"), user("d"), tools=[tool]).refused("too long")
    call.exchange(user("other"), seed=4)

    assert check_cassette(write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", call), RUNS)) == {RUNS[0]: 5}


def test_an_exchange_that_is_there_twice_is_refused(cassette: Path) -> None:
    lines = cassette.read_text().splitlines()
    cassette.write_text("\n".join([*lines, lines[1]]) + "\n")
    assert problems(cassette) == ["c.jsonl:6: row0-run0, rollout, turn 1 is there twice, first on line 2"]


@pytest.mark.parametrize("key", [KEY, "AKIA" + "Z2" * 8, "ghp_" + "a1" * 18, "-----BEGIN RSA PRIVATE KEY-----\nabc"])
def test_a_key_is_refused_with_its_line_and_not_shown(cassette: Path, key: str) -> None:
    edit(cassette, 3, lambda value: value["reply"]["message"].update(content=f"use {key}, please"))
    (problem,) = problems(cassette)
    assert problem.startswith(f'c.jsonl:3: holds what looks like a key ("{key[:6]}..."')
    assert key not in problem


def test_a_key_is_cleaned_from_what_hosts_report() -> None:
    assert cleaned({"content": f"the key is {KEY}", KEY: [KEY]}, dumps) == {
        "content": "the key is [looks like a key]",
        "[looks like a key]": ["[looks like a key]"],
    }


def test_many_problems_are_counted(cassette: Path) -> None:
    with cassette.open("a") as file:
        file.write("broken\n" * 50)
    told = problems(cassette)
    assert len(told) == 21
    assert told[-1] == "c.jsonl: 30 further problems"
