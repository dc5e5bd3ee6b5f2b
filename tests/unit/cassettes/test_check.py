"""Cassettes that are refused before anything runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_osmosis.cassettes.exchange import Run, cleaned
from pytest_osmosis.cassettes.reader import check_cassette
from pytest_osmosis.cassettes.writer import write_cassette
from pytest_osmosis.errors import CassetteError
from pytest_osmosis.text.safe import dumps
from tests.unit.cassettes.recording import Call, assistant, conversation, reply, user, write_log

RUNS = [Run(0, 0), Run(1, 0)]
KEY = "sk-proj-" + "Ab3" * 10


@pytest.fixture
def cassette(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cassette of two runs with two turns each, on lines 2 to 5."""
    monkeypatch.chdir(tmp_path)
    log = write_log(tmp_path / "log", *(conversation(run, "a", "b") for run in RUNS))
    return write_cassette(tmp_path / "c.jsonl", log, RUNS).path


def problems(path: Path) -> list[str]:
    with pytest.raises(CassetteError) as caught:
        check_cassette(path)
    return [str(problem) for problem in caught.value.problems]


def edit(path: Path, line: int, change: Callable[[dict[str, Any]], object]) -> None:
    lines = path.read_text(encoding="utf-8").splitlines()
    value = json.loads(lines[line - 1])
    change(value)
    lines[line - 1] = json.dumps(value)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_a_good_cassette_tells_its_runs_and_a_missing_one_the_option_that_records_it(cassette: Path) -> None:
    content = check_cassette(cassette)
    assert (content.n_exchanges, content.runs) == (4, dict.fromkeys(RUNS, 2))
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
    assert told[5] == (
        "c.jsonl:7: is torn: it has no end. Record the cassette again (--osmosis-record), or get it from git again"
    )


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
def test_a_request_that_was_edited_by_hand_is_refused(
    cassette: Path, change: Callable[[dict[str, Any]], object], line: int, turn: int
) -> None:
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

    content = check_cassette(write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", call), RUNS).path)

    assert content.n_exchanges == 5


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
