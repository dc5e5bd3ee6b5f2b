"""Messages by the anthropic client: how our chat messages are sent, and what is read from an answer."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import pytest

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.models.base import ChatRequest, Message, Usage
from pytest_osmosis.models.messages import DEFAULT_MAX_TOKENS
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests import servers
from tests.servers import ChatServer
from tests.unit.models.talking import KEY, PROMPT, ask, created, failure_of, key_of, kind, model_at, reply_of, sent

CALL = {"id": "call_1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 17, "b": 23}'}}
USE = {"type": "tool_use", "id": "call_1", "name": "multiply", "input": {"a": 17, "b": 23}}
ONE_CALL: dict[str, Any] = {"parallel_tool_calls": False}

pytestmark = pytest.mark.parametrize("client", ["anthropic"], indirect=True)


async def turns(*messages: Message) -> list[Any]:
    found: list[Any] = (await sent(messages=messages))["messages"]
    return found


def user(content: Any) -> Message:
    return {"role": "user", "content": content}


def calling(arguments: str) -> Message:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


def text(said: str) -> dict[str, str]:
    return {"type": "text", "text": said}


async def version_sent(sampling: dict[str, Any], headers: dict[str, str] | None = None) -> str:
    with ChatServer() as server:
        async with model_at(server.base_url, headers=headers) as model:
            await model.chat(ChatRequest(messages=PROMPT, sampling=sampling))
    return server.requests[0].headers["anthropic-version"]


async def test_the_body_holds_the_model_the_messages_and_the_default_bound_and_both_headers_the_key() -> None:
    with ChatServer() as server:
        await ask(server, key=KEY)
    assert server.bodies == [{"model": "Qwen/Qwen3-8B", "messages": PROMPT, "max_tokens": DEFAULT_MAX_TOKENS}]
    assert server.requests[0].path == "/v1/messages"
    headers = server.requests[0].headers
    assert headers["content-type"] == "application/json"
    assert (headers["authorization"], headers["x-api-key"]) == (f"Bearer {KEY}", KEY)


async def test_sampling_uses_the_last_api_version_that_accepts_it() -> None:
    assert (await version_sent({"max_tokens": 5})) > "2023-06-01" or version("anthropic") < "2"
    for name, value in {"temperature": 1.0, "top_p": 0.9, "top_k": 5}.items():
        assert await version_sent({name: value}) == "2023-06-01"
    assert await version_sent({"temperature": 1.0}, headers={"Anthropic-Version": "2026-10-21"}) == "2026-10-21"


@pytest.mark.parametrize("suffix", ["", "/", "/v1", "/v1/"])
async def test_a_base_url_may_end_in_v1_as_for_other_clients(suffix: str) -> None:
    with ChatServer() as server:
        async with model_at(server.url + suffix) as model:
            await model.chat(ChatRequest(messages=PROMPT))
    assert server.requests[0].path == "/v1/messages"


async def test_sampling_keys_are_renamed_for_the_api_and_a_service_without_seeds_gets_none() -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9, "max_completion_tokens": 64, "stop": "END", "top_k": 5}
    renamed = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "stop_sequences": ["END"], "top_k": 5, "seed": 0}
    body = {"model": "Qwen/Qwen3-8B", "messages": PROMPT, **renamed}
    assert await sent(sampling=sampling, seed=0) == body
    with ChatServer() as server:
        async with created(ModelTarget("anthropic", "m", server.url, client="anthropic", seed_key=None)) as model:
            await model.chat(ChatRequest(messages=PROMPT, seed=7))
    assert "seed" not in server.bodies[0]


@pytest.mark.parametrize(
    ("given", "choice"),
    [
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "none"}, {"type": "none"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        ({"tool_choice": {"type": "function", "function": {"name": "f"}}}, {"type": "tool", "name": "f"}),
        ({"tool_choice": {"type": "tool", "name": "f"}}, {"type": "tool", "name": "f"}),
        (ONE_CALL, {"type": "auto", "disable_parallel_tool_use": True}),
        ({"parallel_tool_calls": True}, None),
    ],
)
async def test_the_tool_choice_is_translated(given: dict[str, Any], choice: dict[str, Any] | None) -> None:
    body = await sent(sampling=given)
    assert body.get("tool_choice") == choice
    assert "parallel_tool_calls" not in body


@pytest.mark.parametrize("role", ["system", "developer"])
async def test_leading_system_messages_are_the_system_prompt_and_later_ones_stay(role: str) -> None:
    later = {"role": "system", "content": "Now be long."}
    body = await sent(messages=[{"role": role, "content": "Be brief."}, *PROMPT, later, user("go on")])
    assert (body["system"], body["messages"]) == ("Be brief.", [*PROMPT, later, user("go on")])
    cached = {**text("c"), "cache_control": {"type": "ephemeral"}}
    several = [("system", "a"), (role, [text("b"), cached]), ("system", " \n")]
    body = await sent(messages=[*({"role": role, "content": content} for role, content in several), *PROMPT])
    assert (body["system"], body["messages"]) == ([text("a"), text("b"), cached], PROMPT)


async def test_a_refusal_is_sent_as_text() -> None:
    refused = {"role": "assistant", "content": None, "refusal": "I will not"}
    assert (await turns(*PROMPT, refused, user("please")))[1] == {"role": "assistant", "content": "I will not"}


@pytest.mark.parametrize("content", [None, "", " \n", [], [text("")]])
async def test_empty_content_is_left_out(content: Any) -> None:
    asked = {"role": "assistant", "content": content, "tool_calls": [CALL]}
    empty = {"role": "tool", "tool_call_id": "call_1", "content": content}
    assert await turns(*PROMPT, {"role": "assistant", "content": content}, user("b"), asked, empty) == [
        user([text("17 * 23"), text("b")]),
        {"role": "assistant", "content": [USE]},
        user([{"type": "tool_result", "tool_use_id": "call_1"}]),
    ]


@pytest.mark.parametrize("arguments", ["", None, "{}", {}])
async def test_a_call_without_arguments_has_an_empty_input(arguments: Any) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "now", "arguments": arguments}}
    [_, asked] = await turns(*PROMPT, {"role": "assistant", "content": None, "tool_calls": [call]})
    assert asked["content"] == [{"type": "tool_use", "id": "c", "name": "now", "input": {}}]


@pytest.mark.parametrize(
    ("message", "told"),
    [
        ("hello", r"messages\[0\] must be an object with a role, got str"),
        (user([5]), "a part of content must be a string or an object, got int"),
        (user([{"type": "image_url", "image_url": {}}]), "image_url must have a url, got null"),
        (user([{"type": "image_url", "image_url": {"url": "data:image/png,raw"}}]), "a data: URL must be as in"),
        ({"role": "assistant", "tool_calls": ["f"]}, "a tool call must be an object with a function, got 'f'"),
        (calling("{"), "tool call 'f': arguments must be a JSON object, got '{'"),
        (calling("[1]"), r"tool call 'f': arguments must be a JSON object, got '\[1\]'"),
    ],
)
async def test_messages_that_the_api_cannot_hold_are_the_callers_error_and_not_sent(message: Any, told: str) -> None:
    with ChatServer() as server:
        with pytest.raises((TypeError, ValueError), match=told):
            await ask(server, messages=[message])
    assert server.requests == []


async def test_anthropic_at_another_base_url_gets_its_key_and_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANTHROPIC_CUSTOM_HEADERS", "X-Gateway: mine")
    with ChatServer() as server:
        environ = {"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_API_KEY": KEY}
        async with created(resolve("anthropic/claude", ModelTable(), environ, where="x"), environ) as model:
            await model.chat(ChatRequest(messages=PROMPT))
    headers = server.requests[0].headers
    assert (key_of(headers), headers["x-gateway"]) == (KEY, "mine")
    assert server.bodies[0]["model"] == "claude"


@pytest.mark.parametrize(
    ("stop_reason", "finish_reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("tool_use", "tool_calls"),
        ("refusal", "content_filter"),
        ("pause_turn", "pause_turn"),
        (None, None),
        (5, None),
    ],
)
async def test_the_stop_reason_becomes_a_finish_reason(stop_reason: Any, finish_reason: str | None) -> None:
    assert (await reply_of(servers.blocks(text("42"), stop_reason=stop_reason))).finish_reason == finish_reason


@pytest.mark.parametrize(("blocks", "message"), [([text("4"), text("2")], {"content": "42"}), ([], {"content": ""})])
async def test_text_blocks_are_joined(blocks: list[Any], message: Message) -> None:
    assert (await reply_of(servers.blocks(*blocks))).message == {"role": "assistant", **message}


@pytest.mark.parametrize(
    ("blocks", "details", "told"),
    [
        ([text("I will not")], None, "I will not"),
        ([], {"type": "refusal", "category": "bio", "explanation": "It is unsafe."}, "It is unsafe."),
        ([], {"explanation": None}, "the model refused and did not say why"),
        ([], None, "the model refused and did not say why"),
    ],
)
async def test_a_refusal_says_why(blocks: list[Any], details: Any, told: str) -> None:
    reply = await reply_of(servers.blocks(*blocks, stop_reason="refusal", stop_details=details))
    assert reply.message == {"role": "assistant", "content": None, "refusal": told}


COUNTED: dict[str, Any] = {"input_tokens": 7, "output_tokens": 3}
NO_USAGE: list[Any] = [{"input_tokens": 7}, [], None, *({**COUNTED, "input_tokens": tokens} for tokens in ("7", -1))]
CACHED = {"cache_creation_input_tokens": 100, "cache_read_input_tokens": 1000}


@pytest.mark.parametrize(
    ("usage", "known"),
    [
        (COUNTED, Usage(7, 3)),
        ({**COUNTED, **CACHED}, Usage(1107, 3, cached_input_tokens=1000, cache_write_tokens=100)),
        ({**COUNTED, "cache_read_input_tokens": 0, "cache_creation_input_tokens": None}, Usage(7, 3, 0)),
        ({**COUNTED, "output_tokens_details": {"thinking_tokens": 2}}, Usage(7, 3, reasoning_tokens=2)),
        *((usage, None) for usage in NO_USAGE),
    ],
)
async def test_usage_counts_cached_tokens_as_input_and_is_unknown_if_invalid(usage: Any, known: Usage | None) -> None:
    assert (await reply_of(servers.blocks(text("42"), usage=usage))).usage == known


MODELS, SERVERS = ("model", False, "no", 200), ("provider", True, "no", 200)
NO_BLOCKS: list[Any] = [["42"], [{"text": "42"}], [{"type": ["text"], "text": "42"}]]
NO_USES = [*({name: USE[name] for name in USE if name != gone} for gone in ("id", "input")), {**USE, "input": "{}"}]


@pytest.mark.parametrize(
    ("body", "told", "expected"),
    [
        ({}, "no content", MODELS),
        ({"content": None}, "content = null", MODELS),
        (servers.completion({"role": "assistant", "content": "42"}), "no content", MODELS),
        ({"content": "42"}, "content = a string", SERVERS),
        *(
            ({"content": content}, "content that is not a list of objects with a type", SERVERS)
            for content in NO_BLOCKS
        ),
        ({"content": [{"type": "text", "text": 42}]}, "text = a number", SERVERS),
        ({"content": [{"type": "text"}]}, "text = null", SERVERS),
        *(({"content": [use]}, "a tool_use without id, name or input", SERVERS) for use in NO_USES),
    ],
)
async def test_no_answer_is_the_models_failure_and_one_of_other_types_the_servers(
    body: dict[str, Any], told: str, expected: tuple[str, bool, str, int]
) -> None:
    error = await failure_of(servers.data(body))
    assert kind(error) == expected
    assert str(error) == f"the server answered 200 with {told}"
