"""Requests and answers, as they are kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.cassettes import exchange
from pytest_osmosis.errors import BoundError, ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.record.run_id import ModelTag, RunId
from pytest_osmosis.text.safe import dumps

texts = st.text(st.characters(codec="utf-8") | st.characters(categories=["Cs"]), max_size=20).map(
    lambda text: json.loads(json.dumps(text))  # JSON joins the two surrogates of a pair
)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
counts = st.integers(0, 10**12)
usages = st.builds(Usage, counts, counts, st.none() | counts, st.none() | counts, st.none() | counts)
functions = st.fixed_dictionaries({"name": texts, "arguments": texts})
call = st.fixed_dictionaries({"id": texts, "type": st.just("function"), "function": functions})
contents = st.none() | texts | st.lists(values, max_size=2)
messages = st.fixed_dictionaries(
    {"role": st.sampled_from(["assistant", "user", "tool"]), "content": contents},
    optional={
        "tool_calls": st.lists(call, max_size=2),
        "refusal": texts,
        "reasoning_content": texts,
        "thinking_blocks": values,
        "x": values,
    },
)
answers = messages.map(lambda message: {**message, "role": "assistant"})
replies = st.builds(ChatReply, answers, st.none() | texts, st.none() | usages, st.none() | texts)
requests = st.builds(
    ChatRequest,
    st.lists(messages, max_size=3),
    st.lists(st.dictionaries(texts, values, max_size=2), max_size=2),
    st.dictionaries(texts, values, max_size=3),
    st.none() | st.integers(0, 2**31),
)
askers = st.builds(
    exchange.Asker,
    st.builds(RunId, st.integers(0, 10**6), st.integers(0, 100), st.sampled_from(ModelTag)),
    st.just(exchange.ROLLOUT) | texts.filter(lambda name: max(name, default="") < "\ud800" or max(name) > "\udfff"),
)


@given(askers, requests, replies, st.integers(1, 10**6))
def test_an_exchange_survives_a_file(asker: exchange.Asker, request: ChatRequest, reply: ChatReply, turn: int) -> None:
    body = exchange.stored_request(request, "m", dumps)
    fingerprint = exchange.Fingerprint.of(body)
    answer = {"reply": json.loads(json.dumps(exchange.reply_to_json(reply)))}
    line = exchange.encoded(asker, turn, fingerprint.digest, body, answer)

    value = exchange.read_line(line)
    exchange.check_exchange(value)
    assert line.count(b"\n") == 1
    assert exchange.head_of(line) == exchange.head_in(value)
    assert exchange.head_of(line)[:3] == (asker, turn, fingerprint.digest)
    assert value["request"] == body
    assert exchange.Fingerprint.of(value["request"]) == fingerprint
    assert exchange.reply_from_json(value["reply"]) == reply
    assert json.dumps(exchange.reply_to_json(exchange.reply_from_json(value["reply"]))) == json.dumps(answer["reply"])


HELLO = {"role": "user", "content": "hello"}


def digest(model: str = "m", **fields: Any) -> str:
    fields = {"messages": [HELLO], **fields}
    return exchange.Fingerprint.of(exchange.stored_request(ChatRequest(**fields), model, dumps)).digest


def test_the_digest_covers_what_shapes_an_answer_and_what_is_no_json_is_stored_as_text() -> None:
    others = [
        digest("another"),
        digest(seed=1),
        digest(seed=2),
        digest(sampling={"temperature": 0.5}),
        digest(sampling={"temperature": 0.6}),
        digest(tools=[{"type": "function"}]),
        digest(messages=[HELLO, HELLO]),
        digest(messages=[{**HELLO, "name": "x"}]),
        digest(messages=[]),
    ]
    assert len({digest(), *others}) == len(others) + 1
    assert digest(run="row0-run0") == digest(run="row1-run7")
    assert digest(headers={"X-Session-ID": "0"}) == digest(headers={"X-Session-ID": "1"})
    sampling = {"stop": {"a"}, "x": float("nan"), "p": Path("/p")}
    body = exchange.stored_request(ChatRequest([HELLO], sampling=sampling), "m", dumps)
    assert body["sampling"] == {"stop": "{'a'}", "x": "nan", "p": "/p"}


@pytest.mark.parametrize(
    "error",
    [
        ModelError("the server answered 400 Bad Request: too long", boundary="model", status=400),
        ModelError("refused: no", boundary="model", systemic="never"),
        TypeError("content must be text"),
        ValueError("a tool has no name"),
    ],
)
def test_errors_of_a_request_survive(error: Exception) -> None:
    again = exchange.error_from_json(json.loads(json.dumps(exchange.error_to_json(error))))
    assert (type(again), str(again)) == (type(error), str(error))
    kept = ("boundary", "status", "systemic")
    assert [getattr(again, name, None) for name in kept] == [getattr(error, name, None) for name in kept]
    assert not getattr(again, "retryable", False)


@pytest.mark.parametrize(
    "error",
    [
        ModelError("the server answered 503", status=503, retryable=True),
        ModelError("401", status=401, systemic="always"),
        BoundError("asked 11 times", "[agent] max_turns = 10"),
        KeyError("x"),
        KeyboardInterrupt(),
    ],
)
def test_outages_and_errors_of_code_are_not_stored(error: BaseException) -> None:
    assert exchange.error_to_json(error) is None
