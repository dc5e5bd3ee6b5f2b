"""Chat completions, by the clients that speak them: the body that is sent, and what is read from an answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.models.base import ChatReply, Usage
from tests import servers
from tests.servers import ChatServer
from tests.unit.models.talking import CHAT_CLIENTS, PROMPT, TOOL, ask, error_at, failure_of, kind, reply_of

pytestmark = pytest.mark.parametrize("client", CHAT_CLIENTS, indirect=True)


async def test_the_body_holds_the_model_as_written_the_messages_and_what_the_request_has() -> None:
    sampling = {"temperature": 0.5, "top_p": 0.9, "max_tokens": 64, "stop": ("END",), "min_p": 0.1}
    with ChatServer() as server:
        await ask(server)
        await ask(server, tools=[TOOL], seed=0, sampling=sampling, run="row3-run1")
    asked = {"model": "Qwen/Qwen3-8B", "messages": PROMPT}
    assert server.bodies == [asked, {**asked, "tools": [TOOL], "seed": 0, **sampling, "stop": ["END"]}]
    assert server.requests[0].path == "/v1/chat/completions"
    assert server.requests[0].headers["content-type"] == "application/json"


def counted(prompt: object, completion: object, total: object, **details: object) -> dict[str, object]:
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total, **details}


REASONED = {"completion_tokens_details": {"reasoning_tokens": 25}}
CACHED = Usage(7, 3, cached_input_tokens=5, cache_write_tokens=1)

NO_USAGE: list[object] = [None, "many", [], {}, {"prompt_tokens": 7}]


@pytest.mark.parametrize(
    ("usage", "read"),
    [
        (counted(7, 3, 10, prompt_tokens_details={"cached_tokens": 5}), Usage(7, 3, cached_input_tokens=5)),
        (counted(7, 30, 37, **REASONED), Usage(7, 30, reasoning_tokens=25)),
        (counted(7, 3, 10, prompt_tokens_details={"cached_tokens": 5, "cache_write_tokens": 1}), CACHED),
        (counted(7, 3, 10, prompt_cache_hit_tokens=5, cache_creation_input_tokens=1), CACHED),
        # tokens of reasoning that are not among those of the completion are output
        (counted(10, 5, 40), Usage(10, 30)),
        (counted(10, 5, 40, **REASONED), Usage(10, 30, reasoning_tokens=25)),
        (counted(10, 30, 40, **REASONED), Usage(10, 30, reasoning_tokens=25)),
        (counted(10, 0, 40), Usage(10, 30)),
        *((counted(10, 5, total), Usage(10, 5)) for total in (12, None, "40")),
        *(
            (counted(7, 3, 10, prompt_tokens_details=details), Usage(7, 3))
            for details in (None, "x", {"cached_tokens": None}, {"cached_tokens": -1})
        ),
        *((usage, None) for usage in NO_USAGE),
        *((counted(prompt, 3, 10), None) for prompt in ("7", True, -1, None)),
    ],
)
async def test_usage_has_each_providers_names_and_is_unknown_if_invalid(usage: object, read: Usage | None) -> None:
    reply = await reply_of(servers.reply("42", usage=usage))
    assert (reply.content, reply.usage) == ("42", read)


async def test_a_minimal_reply_is_enough_and_more_is_kept_but_no_absurd_number_and_no_error() -> None:
    reply = await reply_of(servers.data({"choices": [{"message": {"content": "42"}}]}))
    assert reply == ChatReply({"role": "assistant", "content": "42"})
    parts = [{"type": "text", "text": "4"}, {"type": "image"}, {"type": "text", "text": "2"}]
    reply = await reply_of(servers.message(content=parts, reasoning_content="hm", provider_specific_fields={"a": 1}))
    assert reply.content == "42", "the text of a list is joined"
    more = {"reasoning_content": "hm", "provider_specific_fields": {"a": 1}}
    assert reply.message == {"role": "assistant", "content": parts, **more}
    large = "9" * 400
    text = '{"choices": [{"message": {"content": "42", "a": NaN, "b": [-Infinity, 1e999, 0.5, %s, -%s]}}]}'
    reply = await reply_of(servers.body(text % (large, large)))
    assert reply.message == {"role": "assistant", "content": "42", "a": None, "b": [None, None, 0.5, None, None]}
    text = f'{{"choices": [{{"message": {{"content": "42", "a": [{2**63 - 1}, {2**63}]}}}}]}}'
    assert (await reply_of(servers.body(text))).message["a"] == [2**63 - 1, None]
    assert (await reply_of(servers.reply("42", error={"code": 503}))).content == "42"


def choice(text: str, **fields: Any) -> dict[str, Any]:
    return {"message": {"content": text}, **fields}


@pytest.mark.parametrize(
    "choices",
    [
        [choice("no", index=2), choice("no", index=1), choice("42", index=0), choice("no", index=3)],
        [choice("42", index=0), choice("no", index=0)],
        [choice("42", index=3), choice("no", index=2)],
        [choice("42"), choice("no")],
        [None, choice("42", index=0)],
    ],
)
async def test_of_several_choices_the_one_with_index_0_is_the_answer(choices: list[Any]) -> None:
    assert (await reply_of(servers.data({"choices": choices}))).content == "42"


NO_CALL = "tool_calls without a function, its name or its arguments"
FUNCTIONS: tuple[Any, ...] = ({"arguments": "{}"}, {"name": None, "arguments": "{}"}, {"name": "f", "arguments": [1]})
NO_CALLS: list[dict[str, Any]] = [{}, *({"function": function} for function in ("f", *FUNCTIONS))]


def said(**fields: Any) -> list[dict[str, Any]]:
    """The choices of an answer whose message has these fields."""
    return [{"message": {"role": "assistant", **fields}}]


FAILED = {"code": 502, "message": "said"}
OF_MODEL, OF_SERVER, UPSTREAM_502 = (
    ("model", False, "no", 200),
    ("provider", True, "no", 200),
    ("provider", True, "no", 502),
)
NO_ANSWERS: list[tuple[dict[str, Any], str]] = [
    *(({}, "no choices"), ({"choices": []}, "no choices"), ({"choices": None}, "choices = null")),
    *(({"choices": [choice]}, 'a choice without "message"') for choice in ({}, {"message": None})),
]
OF_OTHER_TYPES: list[tuple[object, str]] = [
    *(("x", "choices = a string"), ({}, "choices = an object"), (0, "choices = a number")),
    *(([choice], "a choice that is not an object") for choice in (None, "x")),
    ([{"message": "42"}], "message = a string"),
    ([{"message": {"content": "half an ans"}, "finish_reason": "error"}], 'finish_reason "error"'),
    (said(content=42), "content = a number"),
    (said(content={"text": "42"}), "content = an object"),
    (said(content=[42]), "content that is not a list of objects"),
    (said(role=["assistant"]), "role = a list"),
    (said(refusal={"text": "no"}), "refusal = an object"),
    *((said(tool_calls=calls), "tool_calls that are not a list of objects") for calls in ({"id": 1}, ["x"])),
    *((said(tool_calls=[{"id": "c", **call}]), NO_CALL) for call in NO_CALLS),
]
BROKEN_OFF: list[dict[str, Any]] = [
    {"choices": [{"error": FAILED, "finish_reason": "error"}]},
    {"choices": [{"error": FAILED, "message": {"content": "half an ans"}, "finish_reason": "error"}]},
    {"choices": [{"error": FAILED, "message": {"content": "half an ans"}}]},
    *({"choices": said(content=content), "error": FAILED} for content in ("", None)),
]


@pytest.mark.parametrize(
    ("answer", "expected", "told"),
    [
        *((answer, OF_MODEL, told) for answer, told in NO_ANSWERS),
        *(({"choices": choices}, OF_SERVER, told) for choices, told in OF_OTHER_TYPES),
        *((answer, UPSTREAM_502, "error 502 Bad Gateway: said") for answer in BROKEN_OFF),
    ],
)
async def test_an_answer_that_is_none_is_a_failure_of_whose_it_is(
    answer: Mapping[str, Any], expected: tuple[str, bool, str, int], told: str
) -> None:
    error = await failure_of(servers.data(answer))
    assert kind(error) == expected
    assert str(error) == f"the server answered 200 with {told}"


@pytest.mark.parametrize(("sent", "read"), [({"a": 1}, '{"a": 1}'), ({}, "{}"), (None, "{}"), ("{", "{")])
async def test_the_arguments_of_a_call_are_text_and_calls_of_another_type_are_kept(sent: object, read: str) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": sent}}
    other = {"id": "d", "type": "custom", "custom": {"name": "f", "input": "x"}}
    reply = await reply_of(servers.message(content=None, tool_calls=[call, other]))
    assert reply.tool_calls == [{**call, "function": {"name": "f", "arguments": read}}, other]


@pytest.mark.parametrize("path", ["", "/v1", "/v1beta/openai"])
async def test_a_404_hints_at_a_missing_version_in_the_address(path: str) -> None:
    with ChatServer(servers.status(404)) as server:
        error = await error_at(server.url + path)
    asked = f"the server answered 404 Not Found at {server.url}{path}/chat/completions: scripted 404"
    hint = f'; most servers have /v1 in their address: [model] base_url = "{server.url}/v1"'
    assert str(error) == (asked if path else asked + hint)
