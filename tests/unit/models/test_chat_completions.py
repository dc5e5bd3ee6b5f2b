"""Chat completions, by the clients that speak them: the body that is sent, and what is read from an answer."""

from __future__ import annotations

from typing import Any

import pytest

from pytest_osmosis.models.base import ChatReply, Usage
from tests import servers
from tests.servers import ChatServer
from tests.unit.models.talking import CHAT_CLIENTS, CLIENT, PROMPT, TOOL, ask, failure_of, kind, reply_of


@pytest.fixture(autouse=True, params=CHAT_CLIENTS)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test here holds for every client that speaks chat completions."""
    monkeypatch.setattr(CLIENT, "name", request.param)


async def test_the_body_holds_the_model_as_written_and_the_messages_and_nothing_else() -> None:
    with ChatServer() as server:
        await ask(server)
    assert server.bodies == [{"model": "Qwen/Qwen3-8B", "messages": PROMPT}]
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["content-type"] == "application/json"


async def test_tools_seed_and_sampling_with_its_extra_keys_are_sent() -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "stop": ("END",), "min_p": 0.1}
    with ChatServer() as server:
        await ask(server, tools=[TOOL], seed=7, sampling=sampling, run="row3-run1")
    assert server.bodies == [
        {
            "model": "Qwen/Qwen3-8B",
            "messages": PROMPT,
            "tools": [TOOL],
            "seed": 7,
            "temperature": 0.5,
            "top_p": 0.9,
            "max_tokens": 64,
            "stop": ["END"],
            "min_p": 0.1,
        }
    ]


async def test_the_history_is_sent_back_unchanged() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "multiply", "arguments": "{}"}}
    history = [
        *PROMPT,
        {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"},
        {"role": "tool", "tool_call_id": "c", "content": "391"},
    ]
    with ChatServer() as server:
        await ask(server, messages=history)
    assert server.bodies[0]["messages"] == history


async def test_a_normal_reply() -> None:
    reply = await reply_of(servers.reply("42"))
    assert reply == ChatReply({"role": "assistant", "content": "42"}, "stop", Usage(7, 3), "served-model")


async def test_a_tool_call_keeps_its_null_content() -> None:
    reply = await reply_of(servers.tool_call("multiply", {"a": 17}))
    assert reply.message["content"] is None
    assert reply.content == ""
    assert [call["function"] for call in reply.tool_calls] == [{"name": "multiply", "arguments": '{"a": 17}'}]


async def test_cached_and_reasoning_tokens_are_counted() -> None:
    usage = {
        **servers.USAGE,
        "prompt_tokens_details": {"cached_tokens": 5},
        "completion_tokens_details": {"reasoning_tokens": 2},
    }
    reply = await reply_of(servers.reply("42", usage=usage))
    assert reply.usage == Usage(7, 3, cached_input_tokens=5, reasoning_tokens=2)


@pytest.mark.parametrize(
    "given",
    [
        {"prompt_tokens_details": {"cached_tokens": 5, "cache_write_tokens": 1}},
        {"prompt_cache_hit_tokens": 5, "prompt_cache_miss_tokens": 2, "cache_creation_input_tokens": 1},
        {"prompt_tokens_details": {"cached_tokens": 5}, "cache_creation_input_tokens": 1},
    ],
)
async def test_cached_tokens_are_counted_under_each_providers_name(given: dict[str, object]) -> None:
    reply = await reply_of(servers.reply("42", usage={**servers.USAGE, **given}))
    assert reply.usage == Usage(7, 3, cached_input_tokens=5, cache_write_tokens=1)


@pytest.mark.parametrize("details", [None, "x", {"cached_tokens": None}, {"cached_tokens": -1}])
async def test_invalid_token_details_are_unknown(details: object) -> None:
    reply = await reply_of(servers.reply("42", usage={**servers.USAGE, "prompt_tokens_details": details}))
    assert reply.usage == Usage(7, 3)


@pytest.mark.parametrize(
    "usage",
    [
        None,
        "many",
        [],
        {},
        {"prompt_tokens": 7},
        {"prompt_tokens": "7", "completion_tokens": 3},
        {"prompt_tokens": True, "completion_tokens": 3},
        {"prompt_tokens": -1, "completion_tokens": 3},
        {"prompt_tokens": None, "completion_tokens": None},
    ],
)
async def test_invalid_usage_is_unknown_and_not_zero(usage: object) -> None:
    reply = await reply_of(servers.reply("42", usage=usage))
    assert (reply.content, reply.usage) == ("42", None)


async def test_a_minimal_reply_is_enough() -> None:
    reply = await reply_of(servers.data({"choices": [{"message": {"content": "42"}}]}))
    assert reply == ChatReply({"role": "assistant", "content": "42"})


async def test_list_content_is_passed_through_and_its_text_joined() -> None:
    parts = [{"type": "text", "text": "4"}, {"type": "image"}, {"type": "text", "text": "2"}]
    reply = await reply_of(servers.reply(parts))
    assert reply.message["content"] == parts
    assert reply.content == "42"


async def test_unknown_fields_of_the_message_are_kept() -> None:
    reply = await reply_of(servers.message(content="42", reasoning_content="hm", provider_specific_fields={"a": 1}))
    assert reply.message["reasoning_content"] == "hm"
    assert reply.message["provider_specific_fields"] == {"a": 1}


async def test_nan_and_infinity_become_null() -> None:
    text = '{"choices": [{"message": {"content": "42", "a": NaN, "b": [-Infinity, 1e999, 0.5]}}]}'
    reply = await reply_of(servers.body(text))
    assert reply.message == {"role": "assistant", "content": "42", "a": None, "b": [None, None, 0.5]}


async def test_an_invalid_utf8_byte_costs_one_character() -> None:
    reply = await reply_of(servers.body(b'\xef\xbb\xbf{"choices": [{"message": {"content": "4\xff2"}}]}'))
    assert reply.content == "4\ufffd2"


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, "no choices"),
        ({"choices": []}, "no choices"),
        ({"choices": None}, "choices = null"),
        ({"choices": "x"}, "choices = a str"),
        ({"choices": [None]}, "a choice without a message"),
        ({"choices": [{}]}, "a choice without a message"),
        ({"choices": [{"message": None}]}, "a choice without a message"),
        ({"choices": [{"message": {"tool_calls": {"id": 1}}}]}, "tool_calls that are not a list of objects"),
        ({"choices": [{"message": {"tool_calls": ["x"]}}]}, "tool_calls that are not a list of objects"),
    ],
)
async def test_a_reply_without_an_answer_is_the_models_failure(fields: dict[str, Any], what: str) -> None:
    error = await failure_of(servers.data(fields))
    assert kind(error) == ("model", False, "no", 200)
    assert str(error) == f"the server answered 200 with {what}"


@pytest.mark.parametrize("error", ["no\x07 luck", {"message": "no\x07 luck", "code": 502}])
async def test_an_error_next_to_missing_choices_is_shown(error: object) -> None:
    failure = await failure_of(servers.data({"choices": None, "error": error}))
    assert str(failure) == "the server answered 200 with choices = null: no\\x07 luck"
