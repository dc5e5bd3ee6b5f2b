"""Cassettes that are written from exchange logs, and logs to which several processes append."""

from __future__ import annotations

import random
import stat
from pathlib import Path

import pytest

from pytest_osmosis.cassettes.exchange import LOG, ROLLOUT, Asker, header
from pytest_osmosis.cassettes.reader import CassetteReader, check_cassette
from pytest_osmosis.cassettes.writer import ExchangeLog, write_cassette
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.record.run_id import ModelTag, RunId
from tests.unit.cassettes.recording import Call, conversation, lines_of, reply, user, write_log

FIRST, SECOND = RunId(0, 0), RunId(0, 1)


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
    again = conversation(FIRST, "x", "y", attempt=2)
    judged_twice = [conversation(FIRST, text, asker="rubric", attempt=2) for text in ("old", "new")]
    log = write_log(tmp_path / "log", killed, again, *judged_twice)
    path = write_cassette(tmp_path / "c.jsonl", log, [FIRST])

    assert [each["reply"]["message"]["content"] for each in lines_of(path)] == ["x", "y", "new"]


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


def test_text_is_readable(tmp_path: Path) -> None:
    path = write_cassette(
        tmp_path / "c.jsonl", write_log(tmp_path / "log", conversation(FIRST, "\u65e5 \u00e9")), [FIRST]
    )

    assert "\u65e5 \u00e9".encode() in path.read_bytes()


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
