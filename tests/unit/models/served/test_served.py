"""Requests that the served APIs refuse, and what has no equal in them: errors, reasons, arguments, tokens."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, messages, responses
from pytest_osmosis.models.base import ChatReply, Usage, refusal_error
from pytest_osmosis.models.json_bodies import (
    AnswerLabel,
    ApiError,
    api_error,
    read_body,
    read_served,
    write_answer,
)
from tests.raised import raised

LABEL = AnswerLabel("1", 1_700_000_000, "asked")
QUESTION: list[dict[str, Any]] = [{"role": "user", "content": "17 * 23"}]
USE = {"type": "tool_use", "id": "toolu_1", "name": "add"}
IMAGE = {"type": "image", "source": {"type": "url", "url": "https://example.org/cat.png"}}


def user(*blocks: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": list(blocks)}]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"{", "the body is not JSON: "),
        (b"\xff", "the body is not JSON: "),
        (b"[" * 100_000, "nested more than 100 levels deep"),
        (b"[]", "the body must be a JSON object, got list"),
    ],
)
def test_a_body_that_is_not_an_object_is_refused(raw: bytes, text: str) -> None:
    error = raised(ApiError, read_body, raw)
    assert (error.status, text in str(error)) == (400, True)


OF_A_WRONG_TYPE: list[tuple[dict[str, Any], str]] = [
    ({"messages": None}, "messages must be a list of at least one object, each with a role"),
    ({"messages": [{"content": "no role"}]}, "each with a role"),
    ({"tools": {}}, "tools must be a list of objects such as"),
    ({"tools": ["multiply"]}, "tools must be a list of objects such as"),
    ({"seed": True}, "seed must be an integer, got True"),
]
OTHER = "the body is not a request of this API ("
REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "completions": [
        *OF_A_WRONG_TYPE,
        ({"n": 2}, "n must be 1, because a request gets one answer; send it again for another, got 2"),
        ({"n": "1"}, "n must be 1"),
        ({"n": True}, "n must be 1"),
        ({"stream_options": "usage"}, OTHER),
        ({"messages": [{"role": "assistant", "tool_calls": {}}]}, "tool_calls must be a list of objects"),
    ],
    "messages": [
        *OF_A_WRONG_TYPE,
        ({"max_tokens": None}, "max_tokens: field required"),
        ({"system": 5}, OTHER),
        ({"tool_choice": "auto"}, OTHER),
        ({"tool_choice": {"type": "some"}}, 'tool_choice must have a type: "auto", "any", "tool" or "none"'),
        ({"messages": [{"role": "user"}]}, OTHER),
        ({"messages": user({"text": "no type"})}, "content that is not a list of objects"),
        ({"messages": user({"type": "text"})}, "text = null"),
        ({"messages": user(IMAGE, {**USE, "input": "2"})}, "a tool_use without id, name or input"),
    ],
    "responses": [
        ({"input": None}, "input must be a string or a list of at least one item"),
        ({"input": []}, "input must be a string or a list of at least one item"),
        ({"input": ["hi"]}, OTHER),
        ({"input": [{"content": "hi"}]}, "input[0] must have a role"),
        ({"input": [{"type": "item_reference"}]}, "items of type 'item_reference' are not served; valid: "),
        ({"input": [{"type": "function_call", "name": "add"}]}, "a function_call needs call_id, name and arguments"),
        ({"input": user({"type": "input_image", "file_id": "f"})}, "content of type 'input_image' is not served"),
        ({"previous_response_id": "resp_1"}, "previous_response_id: nothing is stored here; send the whole"),
        ({"conversation": "conv_1"}, "conversation: nothing is stored here"),
        ({"background": True}, "background: the answer has to be awaited"),
        ({"tools": [{"type": "web_search"}]}, "tools[0]: a tool of type 'web_search' runs at OpenAI"),
        ({"tools": ["add"]}, "tools must be a list of objects such as"),
        ({"tool_choice": {"type": "web_search"}}, "only functions can be called here, got 'web_search'"),
        ({"text": "json"}, OTHER),
    ],
}


@pytest.mark.parametrize("shape", [completions, messages, responses], ids=REFUSED)
def test_an_api_refuses_what_it_does_not_serve(shape: Any) -> None:
    valid = {"input": "17 * 23"} if shape is responses else {"messages": QUESTION, "max_tokens": 9}
    for fields, text in REFUSED[shape.__name__.rpartition(".")[2]]:
        error = raised(ApiError, read_served, shape, {**valid, **fields})
        assert (error.status, text in str(error)) == (400, True), text


def test_null_stands_for_a_missing_field_and_both_names_of_the_bound_on_tokens_are_one() -> None:
    fields = ("tools", "seed", "stream", "stream_options", "n", "temperature", "stop", "tool_choice", "metadata")
    read = completions.read_request({"messages": QUESTION, **dict.fromkeys(fields)})
    assert (list(read.chat.tools), read.chat.sampling, read.chat.seed, read.stream) == ([], {}, None, False)
    of_messages = messages.read_request({"messages": QUESTION, "max_tokens": 9, **dict.fromkeys(fields)})
    assert of_messages.chat.sampling == {"max_tokens": 9}
    conversation = [{"role": "developer", "content": "Be brief."}, *QUESTION]
    read = completions.read_request({"messages": conversation, "max_tokens": 5, "max_completion_tokens": 7})
    assert (read.chat.messages, read.chat.sampling) == (conversation, {"max_tokens": 7})


CALLS = [{"id": "call_1", "type": "function", "function": {"name": "add", "arguments": "{}"}}]
SAID: dict[str, Any] = {"role": "assistant", "content": "391"}
CALLED: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": CALLS}


@pytest.mark.parametrize(
    ("message", "finish_reason", "in_completions", "in_messages"),
    [
        (SAID, "stop", "stop", "end_turn"),
        (SAID, "length", "length", "max_tokens"),
        (SAID, "content_filter", "content_filter", "refusal"),
        (SAID, "pause_turn", "stop", "pause_turn"),
        (SAID, "eos", "stop", "end_turn"),
        (SAID, None, "stop", "end_turn"),
        (CALLED, "tool_calls", "tool_calls", "tool_use"),
        (CALLED, "stop", "stop", "tool_use"),
        (CALLED, "length", "length", "max_tokens"),
        (CALLED, None, "tool_calls", "tool_use"),
        ({**SAID, "refusal": "I will not"}, "stop", "stop", "refusal"),
    ],
)
def test_the_reason_why_an_answer_ends_is_one_that_the_api_has(
    message: dict[str, Any], finish_reason: str | None, in_completions: str, in_messages: str
) -> None:
    reply = ChatReply(message, finish_reason)
    [choice] = completions.write_reply(reply, LABEL)["choices"]
    assert choice["finish_reason"] == in_completions
    assert messages.write_reply(reply, LABEL)["stop_reason"] == in_messages


def test_a_refusal_stays_one_and_unknown_tokens_are_left_out_or_0_and_the_model_is_the_servers() -> None:
    refusal = ChatReply({"role": "assistant", "content": None, "refusal": "I will not"}, "stop", Usage(1, 2))
    assert refusal_error(refusal) is not None
    [choice] = completions.write_reply(refusal, LABEL)["choices"]
    assert choice["message"] == refusal.message
    written = messages.write_reply(refusal, LABEL)
    assert written["content"] == [{"type": "text", "text": "I will not"}]
    assert written["stop_details"]["explanation"] == "I will not"
    reply = ChatReply(SAID)
    assert "usage" not in completions.write_reply(reply, LABEL)
    assert messages.write_reply(reply, LABEL)["usage"] == {"input_tokens": 0, "output_tokens": 0}
    for shape in (completions, messages):
        assert shape.write_reply(ChatReply(SAID), LABEL)["model"] == "asked"
        assert shape.write_reply(ChatReply(SAID, model="answered"), LABEL)["model"] == "answered"


@pytest.mark.parametrize("arguments", ["{", "[1]", "391", '{"a": NaN}', '{"a": 1e999}', "[" * 100_000])
def test_arguments_that_are_not_a_json_object_are_sent_in_one(arguments: str) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": arguments}}
    [block] = messages.write_reply(ChatReply({**CALLED, "tool_calls": [call]}), LABEL)["content"]
    assert block["input"] == {"INVALID_JSON": arguments}


@pytest.mark.parametrize("blocks", [[], [{}], ["text"], [{"type": "text"}], {"type": "text", "text": "no"}])
def test_blocks_that_no_server_of_messages_sent_are_not_answered(blocks: Any) -> None:
    written = messages.write_reply(ChatReply({**SAID, "content_blocks": blocks}), LABEL)
    assert written["content"] == [{"type": "text", "text": "391"}]


def test_a_stream_of_completions_has_its_tokens_only_if_they_are_asked_for() -> None:
    reply = ChatReply(SAID, "stop", Usage(5, 7), "m")
    for options, expected in (({}, []), ({"stream_options": {"include_usage": True}}, [5])):
        served = completions.read_request({"messages": QUESTION, "stream": True, **options})
        answer = write_answer(completions, served, reply, LABEL)
        assert answer.content_type == "text/event-stream"
        *chunks, done = answer.body.decode().removesuffix("\n\n").split("\n\n")
        assert done == "data: [DONE]"
        usages = [json.loads(chunk.removeprefix("data: ")).get("usage") for chunk in chunks]
        assert [usage["prompt_tokens"] for usage in usages if usage] == expected


@pytest.mark.parametrize(
    ("error", "status", "of_openai", "of_anthropic"),
    [
        (ModelError("wrong key", status=401), 401, "authentication_error", "authentication_error"),
        (ModelError("too long", status=400, boundary="model"), 400, "invalid_request_error", "invalid_request_error"),
        (ModelError("busy", status=429, retryable=True), 429, "rate_limit_error", "rate_limit_error"),
        (ModelError("cancelled", status=499, retryable=True), 499, "server_error", "api_error"),
        (ModelError("overloaded", status=529), 529, "server_error", "overloaded_error"),
        (ModelError("cannot reach"), 502, "server_error", "api_error"),
        (ModelError("not JSON", status=200), 502, "server_error", "api_error"),
        (ModelError("no answer", status=200, boundary="model"), 400, "invalid_request_error", "invalid_request_error"),
    ],
)
def test_an_error_keeps_its_status_and_text(error: ModelError, status: int, of_openai: str, of_anthropic: str) -> None:
    found = api_error(error)
    assert found.status == status
    body = completions.write_error(found)["error"]
    assert (body["message"], body["type"]) == (str(error), of_openai)
    body = messages.write_error(found)
    assert body == {"type": "error", "error": {"type": of_anthropic, "message": str(error)}}
