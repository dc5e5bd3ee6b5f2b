"""Errors of requests that a cassette does not have, differences of requests, lines and output of a host."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.cassettes.reader import CassetteReader
from pytest_osmosis.cassettes.writer import write_cassette
from pytest_osmosis.errors import ModelError
from pytest_osmosis.host import output
from pytest_osmosis.host.exchanges import MOST_LINES, AskerExchanges, HostExchanges, difference
from pytest_osmosis.host.protocol import Key, encode, line_of, read_event, read_request
from pytest_osmosis.host.slots import size_of
from pytest_osmosis.models.base import ChatRequest, Message
from pytest_osmosis.record.run_id import RunId
from pytest_osmosis.text.safe import dumps
from tests.raised import raised_by
from tests.unit.cassettes.recording import Call, user, write_log

MODEL = "m"

Exchanges = Callable[..., AskerExchanges]


async def error_of(exchanges: AskerExchanges, messages: Sequence[Message]) -> Any:
    return await raised_by(ModelError, exchanges.asks(ChatRequest(messages), MODEL).answer())


FIRST, SECOND = [user("first")], [user("common"), user("second")]


@pytest.fixture
def exchanges_of(tmp_path: Path) -> Iterator[Exchanges]:
    """Open a cassette with three runs, whose rollouts sent two requests, and were not judged."""
    runs = [RunId(0, 0), RunId(1, 0), RunId(5, 0)]
    calls = [Call(run) for run in runs]
    for call in calls:
        call.exchange(*FIRST)
        call.exchange(*SECOND)
    path = write_cassette(tmp_path / "c.jsonl", write_log(tmp_path / "log", *calls), runs)
    with CassetteReader.open([path]) as reader:
        store = HostExchanges({"mode": "replay", "paths": [], "needed": []}, reader)
        yield lambda run, name="rollout": AskerExchanges(store, Key(run, 1), name, dumps)


@pytest.mark.parametrize(
    ("run", "name", "text"),
    [
        (RunId(0, 1), "rollout", "it does not hold this run, but row0-run0, row1-run0, row5-run0"),
        (RunId(0, 0), "rewards:f", "it holds this run, but nothing that rewards:f asked"),
    ],
)
async def test_what_the_cassette_holds_is_told(exchanges_of: Exchanges, run: RunId, name: str, text: str) -> None:
    error = await error_of(exchanges_of(run, name), FIRST)
    assert str(error) == f"the cassette has no answer: {text}; --osmosis-record=new records what is missing"
    assert (error.boundary, error.retryable, error.systemic, error.details) == ("provider", False, "no", "")


LEFT = "request 3 of the rollout was not recorded; of the recorded ones request 1 is left;"
ADDED = ['+   "role": "user"', "+  },", "+  {", '+   "content": "more",']
ANOTHER = ['-   "content": "second",', '+   "content": "another",']


@pytest.mark.parametrize(
    ("answered", "asked", "said", "changed"),
    [
        ([SECOND], [[user("x")], [user("first"), user("more")]], LEFT, ADDED),
        ([FIRST], [[user("common"), user("another")]], "request 2 of the rollout has changed since it was", ANOTHER),
        ([FIRST, SECOND], [[user("third")]], "2 requests of the rollout were recorded and are answered, and this", []),
    ],
    ids=["the turn was answered", "in the place of a recorded one", "more than were recorded"],
)
async def test_a_request_that_was_not_recorded_is_compared_with_what_was(
    exchanges_of: Exchanges, answered: list[Any], asked: list[Any], said: str, changed: list[str]
) -> None:
    exchanges = exchanges_of(RunId(0, 0))
    for messages in answered:
        await exchanges.asks(ChatRequest(messages), MODEL).answer()
    error = [await error_of(exchanges, messages) for messages in asked][-1]
    assert said in str(error)
    assert [line for line in error.details.splitlines()[2:] if line[0] in "+-"] == changed


ADDS = {"name": "add", "description": "Add numbers.", "parameters": {"type": "object"}}
ADD = {"type": "function", "function": ADDS}
CALL = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}


def request(**fields: Any) -> dict[str, Any]:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is 1 + 2?"}, {"type": "image_url", "url": "x"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": "3"},
    ]
    return {"model": "m", "sampling": {"temperature": 0.5}, "tools": [ADD], "messages": messages, **fields}


def changes(*changed: dict[str, Any]) -> list[str]:
    lines = difference(*changed)
    assert lines[:2] == ["--- recorded", "+++ asked now"]
    return [line for line in lines[2:] if line[0] in "+-"]


def test_settings_and_tools_are_compared_and_equal_requests_have_no_difference() -> None:
    assert difference(request(), request()) == []
    other = {**ADD, "function": {**ADDS, "description": "Add two numbers."}}
    assert changes(request(), request(model="n", seed=3, sampling={"temperature": 0.7}, tools=[other])) == [
        '- "model": "m",',
        '+ "model": "n",',
        '-  "temperature": 0.5',
        '+  "temperature": 0.7',
        '+ "seed": 3,',
        '-    "description": "Add numbers.",',
        '+    "description": "Add two numbers.",',
    ]


def test_only_the_changed_part_of_a_paragraph_is_shown_and_a_long_difference_is_cut() -> None:
    words = [f"word{number}" for number in range(2000)]
    before = request(messages=[{"role": "user", "content": " ".join(words)}])
    words[1000] = "changed"
    lines = difference(before, request(messages=[{"role": "user", "content": " ".join(words)}]))
    assert len(lines) < 30
    assert any("changed" in line for line in lines if line.startswith("+"))
    assert max(map(len, lines)) < 110
    before = request(messages=[{"role": "user", "content": "\n".join(f"a {n}" for n in range(500))}])
    after = request(messages=[{"role": "user", "content": "\n".join(f"b {n}" for n in range(500))}])
    lines = difference(before, after)
    assert len(lines) == MOST_LINES + 1
    assert lines[-1] == "[... 949 further lines left out ...]"
    assert changes(request(messages=["x"], tools=["a"]), request(messages=[None], tools=[{"function": 1}]))


RUN = {"row": 0, "run": 0, "attempt": 1}
START = {"ev": "start", **RUN, "at": "2026-01-01T00:00:00Z"}
SCORE = {"ev": "score", **RUN, "ms": 1, "scores": {"f": 1}, "errors": {}, "output": {}}
DENIED = {"ev": "denied", "model_tag": "judge", "error": "401"}

OF_BASELINE, REMOVED = {**START, "model_tag": "baseline", "later": 1}, {**SCORE, "removed": True, "name": "f"}

ODD = ["\ud800", "\x7f", "caf\u00e9", "null", None, 2**70, 1e22, -0.0, {"a": [1.5]}]
ROLLOUT: dict[str, object] = {"ev": "rollout", **RUN, "ms": 1.5, "messages": ODD, "n_prompt": 0, "usage": None}


@pytest.mark.parametrize(
    "event", [START, OF_BASELINE, SCORE, REMOVED, DENIED, {**SCORE, "ground_truth": ODD[-4:]}, ROLLOUT]
)
def test_events_are_read_as_they_were_written(event: dict[str, Any]) -> None:
    assert read_event(json.dumps(event).encode()) == event
    line = line_of(event)
    assert line.isascii()
    assert "\x7f" not in line
    assert json.loads(line) == event
    assert read_event(line.encode()) == {name: value for name, value in event.items() if name != "later"}


@pytest.mark.parametrize("cells", [ODD, ["caf\u00e9", "null", None, 2**63, -0.0, {"a": [1e22]}]])
def test_requests_are_read_as_they_were_written(cells: list[Any]) -> None:
    request = {"op": "run", **RUN, "prompt": cells, "ground_truth": None, "record": {"cells": cells}, "seed": None}
    (line,) = encode([request]).splitlines()
    assert read_request(line) == request


@pytest.mark.parametrize("odd", [float("nan"), b"x", datetime(2024, 1, 1)])  # noqa: DTZ001 (it is only shown)
def test_values_without_a_form_in_json_become_their_text(odd: object) -> None:
    rollout: Any = {**ROLLOUT, "environment": {"state": odd}}
    assert json.loads(line_of(rollout))["environment"] == {"state": str(odd)}
    rollout = {**ROLLOUT, "messages": [float("nan")]}
    assert json.loads(line_of(rollout))["messages"] == ["nan"]


@pytest.mark.parametrize(
    ("event", "fault"),
    [
        *((None, "not an event"), (5, "not an event"), ("x", "not an event"), ([], "not an event")),
        *(({"ev": "stop"}, "not an event"), ({"ev": "began"}, "not an event")),
        *(({}, "lacks ev"), ({"ev": None}, "lacks ev"), ({"ev": ["start"]}, "lacks ev")),
        *(({name: value for name, value in SCORE.items() if name != gone}, f"lacks {gone}") for gone in SCORE),
        ({**START, "row": "0"}, "row: must be an integer, got '0'"),
        ({**SCORE, "removed": True}, "lacks name"),
        ({"ev": "broken", **RUN, "boundary": "\ud800", "error": "x"}, "boundary: cannot be"),
        *(({**START, "model_tag": tag}, "model_tag: ") for tag in ("third", "judge", None, 5, ["primary"])),
    ],
)
def test_other_lines_are_refused(event: object, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        read_event(json.dumps(event).encode())


def test_a_bound_on_an_answer_that_is_no_number_is_no_part_of_the_size() -> None:
    size = size_of(ChatRequest([], sampling={"max_tokens": True, "max_completion_tokens": 7.5}))

    event = {"ev": "ask", "row": 0, "run": 0, "attempt": 1, "id": 1, **size._asdict()}
    assert read_event(json.dumps(event).encode()) == event


def test_head_and_tail_of_long_text_are_kept_with_the_size_of_the_gap() -> None:
    kept = output.TruncatedText()
    for number in range(200_000):
        kept.write(f"{number:06} ")
    text = kept.text()
    assert text.startswith("000000 000001 ")
    assert text.endswith(" 199999 ")
    assert f"[... {200_000 * 7 - output.HEAD_CHARS - output.TAIL_CHARS:,} characters left out ...]" in text
    assert len(text) < output.HEAD_CHARS + output.TAIL_CHARS + 100


@given(st.lists(st.integers(0, 3 * output.TAIL_CHARS), max_size=12))
def test_the_number_of_writes_does_not_matter(sizes: list[int]) -> None:
    whole = "".join(chr(97 + index % 26) for index in range(sum(sizes)))
    pieces, once = output.TruncatedText(), output.TruncatedText()
    once.write(whole)
    at = 0
    for size in sizes:
        pieces.write(whole[at : at + size])
        at += size
    assert pieces.text() == once.text()


async def test_each_context_writes_to_its_own_sink_and_other_code_to_the_log() -> None:
    log = io.StringIO()
    stream = output.RoutedStream(log)

    async def print_in_task(name: str) -> None:
        print("task", name, file=stream)

    async def work(name: str) -> dict[str, str]:
        with output.Sink() as sink:
            print("begin", name, file=stream)
            await asyncio.sleep(0)
            await asyncio.to_thread(print, "thread", name, file=stream)
            await asyncio.create_task(print_in_task(name))
            return sink.take()

    print("no run", file=stream)
    first, second = await asyncio.gather(work("a"), work("b"))
    assert first == {"stdout": "begin a\nthread a\ntask a\n"}
    assert second == {"stdout": "begin b\nthread b\ntask b\n"}
    assert log.getvalue() == "no run\n"


def test_take_empties_the_sink_to_which_log_records_go_even_after_one_that_cannot_be_formatted() -> None:
    logger = logging.Logger("mine")
    handler = output.RoutedHandler(io.StringIO())
    logger.addHandler(handler)
    raised, logging.raiseExceptions = logging.raiseExceptions, False
    try:
        with output.Sink() as sink:
            logger.warning("%d", "no number")
            logger.warning("number %d", 1)
            assert "number 1" in sink.take()["log"]
    finally:
        logging.raiseExceptions = raised
    with output.Sink() as sink:
        sink.write("stdout", "once")
        sink.write("log", "")
        assert sink.take() == {"stdout": "once"}
        assert sink.take() == {}


def test_the_log_is_redacted_and_a_full_disk_raises_no_error_in_code_that_logs() -> None:
    log = io.StringIO()
    stream = output.RoutedStream(output.RedactedLog(log, lambda text: text.replace("secret", "[S]")))  # type: ignore[arg-type]
    assert stream.write("a secret\n") == 9
    assert log.getvalue() == "a [S]\n"
    with Path("/dev/full").open("w", buffering=1) as full:
        lost: Any = output.RedactedLog(full, str)
        assert output.RoutedStream(lost).write("lost\n") == 5
        output.RoutedHandler(lost).emit(logging.LogRecord("mine", logging.WARNING, "f.py", 1, "lost", None, None))
        lost.flush()
        lost.close()  # as the interpreter does at its end
        with contextlib.suppress(OSError):
            full.close()
