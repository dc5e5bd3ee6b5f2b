"""Cassettes and exchange logs: answers that are found in them, cassettes that are refused, and how both are written."""

from __future__ import annotations

import json
import random
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.cassettes.exchange import LOG, ROLLOUT, Asker, cleaned, header
from pytest_osmosis.cassettes.reader import AskerAnswers, CassetteReader, Stored, answer_of, check_cassette
from pytest_osmosis.cassettes.writer import ExchangeLog, write_cassette
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.safe import dumps
from tests.raised import problems_of
from tests.unit.cassettes.recording import Call, assistant, conversation, lines_of, reply, user, write_log

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
        assert check_cassette(file).keys() == {FIRST}, "a digest does not depend on the order of keys"


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


@pytest.mark.parametrize(
    ("line", "turn", "change"),
    [
        *((turn + 1, turn, lambda value: value["request"]["messages"][0].update(content="other")) for turn in (1, 2)),
        (2, 2, lambda value: value["reply"]["message"].update(content="other")),
    ],
)
def test_a_request_that_was_edited_by_hand_is_refused(cassette: Path, line: int, turn: int, change: Change) -> None:
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


def test_an_exchange_that_is_there_twice_is_refused_and_many_problems_are_counted(cassette: Path) -> None:
    lines = cassette.read_text().splitlines()
    cassette.write_text("\n".join([*lines, lines[1]]) + "\n")
    assert problems(cassette) == ["c.jsonl:6: row0-run0, rollout, turn 1 is there twice, first on line 2"]
    with cassette.open("a") as file:
        file.write("broken\n" * 50)
    told = problems(cassette)
    assert (len(told), told[-1]) == (21, "c.jsonl: 31 further problems")


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


def test_the_order_in_which_runs_end_does_not_change_a_cassette(tmp_path: Path) -> None:
    runs = [RunId(row, run, tag) for row in range(3) for run in range(2) for tag in ModelTag]
    calls = [conversation(run, f"{run} a", f"{run} b", "c") for run in runs]
    calls += [conversation(run, f"{run} is right", asker=asker) for run in runs for asker in ("rubric", "a:judge")]
    chance = random.Random(3)
    cassettes = []
    for number in range(4):
        lines = [list(call.lines) for call in calls]
        log = tmp_path / f"log-{number}.jsonl"
        shuffled = Call(FIRST)
        while left := [each for each in lines if each]:  # those of one call stay in their order
            shuffled.lines.append(chance.choice(left).pop(0))
        write_log(log, shuffled)
        written = write_cassette(tmp_path / f"cassette-{number}.jsonl", log, runs)
        cassettes.append(written.read_bytes())
        assert len(lines_of(written)) == 60

    assert len(set(cassettes)) == 1
    places = [(each["row"], each["run"], each.get("model_tag"), each["asker"]) for each in lines_of(written)]
    assert places[:5] == [(0, 0, None, asker) for asker in ("rollout", "rollout", "rollout", "a:judge", "rubric")]
    assert places[5][2] == "baseline"
    assert set(check_cassette(written)) == set(runs)


def test_requests_in_flight_together_are_sorted_by_their_messages(tmp_path: Path) -> None:
    written = []
    for number, order in enumerate(([0, 1, 2], [2, 0, 1], [1, 2, 0])):
        call = Call(FIRST)
        asked = [call.asks(user("a" * (index + 1)), user("more")) for index in order]
        for index in random.Random(number).sample(range(3), 3):
            asked[index].answered(reply(f"answer to {asked[index].body['messages'][0]['content']}"))
        call.exchange(user("done"))
        log = write_log(tmp_path / f"{number}.log", call)
        written.append(write_cassette(tmp_path / f"{number}.jsonl", log, [FIRST]))

    assert len({path.read_bytes() for path in written}) == 1
    exchanges = lines_of(written[0])
    assert [each["turn"] for each in exchanges] == [1, 2, 3, 4]
    assert exchanges[-1]["request"]["messages"] == [user("done")], "what was sent later comes later"
    for each in exchanges[:3]:
        question = each["request"]["messages"][0]["content"]
        assert each["reply"]["message"]["content"] == f"answer to {question}"


def test_equal_requests_in_flight_together_keep_their_own_answers(tmp_path: Path) -> None:
    call = Call(FIRST, asker="rubric")
    votes = [call.asks(user("Right?")) for _ in range(3)]
    for vote, text in ((1, "second"), (0, "first"), (2, "third")):
        votes[vote].answered(reply(text))
    path = write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", call), [FIRST])

    assert [each["reply"]["message"]["content"] for each in lines_of(path)] == ["first", "second", "third"]


def test_a_turn_holds_only_its_own_messages(tmp_path: Path) -> None:
    call = Call(FIRST)
    tools = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
    settings = {"tools": tools, "sampling": {"temperature": 0.5}, "seed": 4}
    messages = [user("question")]
    for number in range(40):
        messages = [*messages, call.exchange(*messages, text=f"answer {number}", **settings), user(f"more {number}")]
    call.exchange(*messages, sampling={"temperature": 1.0})
    path = write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", call), [FIRST])

    exchanges = lines_of(path)
    assert exchanges[0]["request"] == {"model": "m", **settings, "messages": [user("question")]}
    assert exchanges[39]["request"] == {"continues": {"turn": 39, "messages": 78}, "messages": [user("more 38")]}
    assert exchanges[40]["request"] == {
        "continues": {"turn": 40, "messages": 80},
        "seed": None,
        "sampling": {"temperature": 1.0},
        "tools": [],
        "messages": [user("more 39")],
    }
    with CassetteReader.open([path]) as reader:
        answers = reader.at(Asker(FIRST, ROLLOUT))
        request = answers.request(answers.left[40])
    assert request == {"model": "m", "sampling": {"temperature": 1.0}, "messages": messages}


def test_of_several_attempts_the_last_counts(tmp_path: Path) -> None:
    killed = conversation(FIRST, "a", "b", "c")
    again = conversation(FIRST, "x", "\u65e5", attempt=2)
    judged_twice = [conversation(FIRST, text, asker="rubric", attempt=2) for text in ("old", "new")]
    log = write_log(tmp_path / "log", killed, again, *judged_twice)
    path = write_cassette(tmp_path / "c.jsonl", log, [FIRST])

    assert [each["reply"]["message"]["content"] for each in lines_of(path)] == ["x", "\u65e5", "new"]
    assert "\u65e5".encode() in path.read_bytes(), "text is readable"


def test_exchanges_of_other_runs_stay_and_an_equal_cassette_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "cassettes" / "c.jsonl"
    first = write_log(tmp_path / "1", conversation(FIRST, "a"), conversation(SECOND, "b"))
    write_cassette(path, first, [FIRST, SECOND])
    killed = conversation(SECOND, "half")
    second = write_log(tmp_path / "2", conversation(FIRST, "anew"), killed, conversation(SECOND, "j", asker="rubric"))
    write_cassette(path, second, [FIRST])

    exchanges = [(each["run"], each["asker"], each["reply"]["message"]["content"]) for each in lines_of(path)]
    assert exchanges == [(0, "rollout", "anew"), (1, "rollout", "b"), (1, "rubric", "j")]
    assert [each.name for each in path.parent.iterdir()] == ["c.jsonl"], "no temporary file is left"
    path, log = tmp_path / "c.jsonl", write_log(tmp_path / "log", conversation(FIRST, "a"))
    write_cassette(path, log, [FIRST])
    before = path.stat()
    write_cassette(path, log, [FIRST])

    assert path.stat().st_ino == before.st_ino


def test_a_turn_whose_beginning_was_lost_with_its_host_is_left_out(tmp_path: Path) -> None:
    call = conversation(FIRST, "a", "b")
    del call.lines[0]
    path = write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", call), [FIRST])
    assert lines_of(path) == []


def test_a_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "x.jsonl"
    log = ExchangeLog(path)
    for number in range(2):
        (line,) = conversation(RunId(0, number), "x" * 2000).lines
        log.add(line, sent=True)
        log.write()
    log.close()
    assert path.read_bytes().startswith(header(LOG))
    with CassetteReader.open([path]) as reader:
        assert reader.runs() == {RunId(0, 0), RunId(0, 1)}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_line_that_a_crash_tore_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    first, second = conversation(RunId(0, 0), "a"), conversation(RunId(1, 0), "b")
    for torn in (b'{"schema_ver', header(LOG) + first.lines[0] + second.lines[0][:50]):
        path.write_bytes(torn)
        log = ExchangeLog(path)
        log.add(second.lines[0], sent=True)
        log.write()
        log.close()
        assert path.read_bytes().endswith(b"\n" + second.lines[0])
        with CassetteReader.open([path]) as reader:
            assert reader.runs() - {RunId(0, 0)} == {RunId(1, 0)}


def test_a_log_that_cannot_be_written_is_an_error_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "folder").write_text("a file")
    log = ExchangeLog(tmp_path / "folder" / "x.jsonl")
    log.add(b"{}\n", sent=True)
    with pytest.raises(CassetteError, match=r"folder/x\.jsonl: cannot be written: "):
        log.write()
    log.add(b"{}\n", sent=True)
    log.write()
    assert log.n_sent == 2
