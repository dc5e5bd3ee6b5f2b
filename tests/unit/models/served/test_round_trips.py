"""Round trips between our side of the APIs, the served one, and the official clients: requests, replies, streams."""

from __future__ import annotations

import importlib
import json
from contextlib import suppress
from typing import Any

import anthropic
import openai
import pytest
from anthropic import Anthropic
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace
from openai import OpenAI

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import completions, json_bodies, messages, responses
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import AnswerLabel, ApiError, ApiShape, read_body, read_served
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests.hostile.test_endpoint import BODIES_OF_REQUESTS
from tests.hostile.test_fuzz_http import REPLIED

URL = "http://127.0.0.1:9/v1"
LABEL = AnswerLabel("1", 1_700_000_000, "m")
FAILURES = Failures(URL, URL)
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}}}
CACHED = {"cache_control": {"type": "ephemeral"}}


def target_of(path: str) -> ModelTarget:
    return resolve(path, ModelTable(), {}, where="x.toml:1")


ANTHROPIC, OPENAI, OTHER = target_of("anthropic/m"), target_of("openai/m"), target_of("ollama/m")


def text(said: str, **marks: Any) -> dict[str, Any]:
    return {"type": "text", "text": said, **marks}


def read(shape: ApiShape, body: bytes) -> ChatRequest:
    return shape.read_request(read_body(body)).chat


# -- strategies -------------------------------------------------------------------------------------------

TEXTS = st.text(max_size=200)
WORDS = st.text(min_size=1, max_size=200).filter(lambda text: text.strip() != "")
NAMES = st.from_regex(r"[a-z_]{1,20}", fullmatch=True)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(NAMES, JSON, max_size=3).map(json.dumps)
PARTS = st.lists(
    st.builds(lambda text: {"type": "text", "text": text}, WORDS)
    | st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}})
    | st.just({"type": "image_url", "image_url": {"url": "https://example.org/cat.png"}})
    | st.just(text("marked", **CACHED)),
    min_size=1,
    max_size=3,
)
CONTENTS = WORDS | PARTS


def calls_of(names_and_arguments: list[tuple[str, str]]) -> list[dict[str, Any]]:
    return [
        {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for number, (name, arguments) in enumerate(names_and_arguments)
    ]


CALLS = st.lists(st.tuples(NAMES, ARGUMENTS), min_size=1, max_size=3).map(calls_of)


@st.composite
def turns(draw: st.DrawFn) -> list[Message]:
    """A question, and perhaps calls with their results, in parallel, and an answer."""
    role = draw(st.sampled_from(["user", "user", "system", "developer"]))
    conversation: list[Message] = [{"role": role, "content": draw(CONTENTS)}]
    if draw(st.booleans()):
        calls = draw(CALLS)
        conversation.append({"role": "assistant", "content": draw(st.none() | WORDS), "tool_calls": calls})
        for call in calls:
            mark = draw(st.sampled_from([{}, {"is_error": True}]))
            conversation.append({"role": "tool", "tool_call_id": call["id"], "content": draw(CONTENTS), **mark})
    if draw(st.booleans()):
        conversation.append(draw(st.builds(lambda text: {"role": "assistant", "content": text}, WORDS)))
    return conversation


CHOICES = ["auto", "none", "required", {"type": "function", "function": {"name": "multiply"}}]
PRODUCT = {"type": "json_schema", "json_schema": {"name": "product", "schema": SCHEMA}}
SAMPLING = st.fixed_dictionaries(
    {},
    optional={
        "temperature": st.floats(0, 2),
        "max_tokens": st.integers(1, 10_000),
        "stop": st.lists(WORDS, min_size=1, max_size=2),
        "user": NAMES,
        "tool_choice": st.sampled_from(CHOICES),
        "parallel_tool_calls": st.just(False),
        "reasoning_effort": st.sampled_from(["none", "minimal", "low", "medium", "high"]),
        "verbosity": st.just("low"),
        "response_format": st.sampled_from([{"type": "text"}, PRODUCT]),
    },
)
TOOLS = [
    {"type": "function", "function": {"name": "multiply", "description": "Multiply.", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "add", "parameters": SCHEMA, "strict": True}},
    {"type": "function", "function": {"name": "last", "parameters": SCHEMA}, **CACHED},
]


@st.composite
def requests(draw: st.DrawFn) -> ChatRequest:
    parts = draw(st.lists(turns(), min_size=1, max_size=3))
    conversation = [*(each for part in parts for each in part), {"role": "user", "content": "17 * 23"}]
    tools = draw(st.lists(st.sampled_from(TOOLS), max_size=3))
    return ChatRequest(conversation, tools, draw(SAMPLING), draw(st.none() | st.integers(0, 1000)))


REQUESTS = requests()


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    fresh, output = draw(st.integers(0, 1000)), draw(st.integers(0, 1000))
    cached, reasoning, written = (draw(st.none() | st.integers(0, 100)) for _ in range(3))
    return Usage(fresh + (cached or 0) + (written or 0), output + (reasoning or 0), cached, reasoning, written)


@st.composite
def replies(draw: st.DrawFn) -> ChatReply:
    """A reply with text or calls or both, and perhaps its reasoning."""
    calls = draw(st.none() | CALLS)
    message: Message = {"role": "assistant", "content": draw(WORDS if calls is None else st.none() | WORDS)}
    if calls is not None:
        message["tool_calls"] = calls
    reasoning = draw(st.none() | WORDS)
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    reason = draw(st.sampled_from(["stop", "length"])) if calls is None else "tool_calls"
    return ChatReply(message, reason, draw(usages()), "m")


# -- requests ---------------------------------------------------------------------------------------------


@given(REQUESTS)
def test_completions_and_messages_read_the_request_that_is_written(request: ChatRequest) -> None:
    sent = [{key: value for key, value in message.items() if key != "is_error"} for message in request.messages]
    expected = ChatRequest(sent, request.tools, request.sampling, request.seed)
    assert read(completions, completions.write_request(request, OTHER)) == expected
    written = messages.write_request(request, ANTHROPIC)
    assert json.loads(messages.write_request(read(messages, written), ANTHROPIC)) == json.loads(written)


def image(**source: str) -> dict[str, Any]:
    return {"type": "image", "source": source}


def use(number: int, of: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": f"toolu_{number}", "name": "count", "input": {"of": of}}


def result(number: int, content: Any, **marks: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": content, **marks}


LOOK = [
    *(text("Look:"), image(type="base64", media_type="image/png", data="iVBORw0KGgo=")),
    *(image(type="url", url="https://example.org/cat.png"), image(type="file", file_id="file_1")),
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a page"}},
]
SEEN = [
    {"type": "thinking", "thinking": "A cat.", "signature": "c2lnbmVk"},
    {"type": "redacted_thinking", "data": "aGlkZGVu"},
    *(text("I see a cat."), use(1, "cats"), use(2, "dogs")),
]
COUNTED = [
    result(1, "1"),
    result(2, [text("no dogs"), image(type="url", url="https://example.org/dog.png")], is_error=True),
    text("And now?", **CACHED),
]
EVERYTHING: dict[str, Any] = {
    "model": "m",
    "max_tokens": 100,
    "system": [text("Be brief."), text("Be right.", **CACHED)],
    "messages": [
        {"role": "user", "content": LOOK},
        {"role": "assistant", "content": SEEN},
        {"role": "user", "content": COUNTED},
        {"role": "assistant", "content": [text("One.", **CACHED)]},
        {"role": "user", "content": "Thanks"},
    ],
    "tools": [
        {"name": "count", "description": "Count.", "input_schema": SCHEMA, "strict": True},
        {"name": "last", "input_schema": SCHEMA, **CACHED},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 2},
    ],
    "tool_choice": {"type": "tool", "name": "count", "disable_parallel_tool_use": True},
    "stop_sequences": ["END"],
    "metadata": {"user_id": "u1"},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": SCHEMA}},
    "temperature": 0.5,
    "top_k": 5,
    "thinking": {"type": "enabled", "budget_tokens": 1024},
}


def test_a_request_with_everything_reaches_a_model_with_either_api() -> None:
    request = read(messages, json.dumps(EVERYTHING).encode())
    assert json.loads(messages.write_request(request, ANTHROPIC)) == EVERYTHING
    body = json.loads(completions.write_request(request, OPENAI))
    calls = [
        {"id": id, "type": "function", "function": {"name": "count", "arguments": json.dumps({"of": kind})}}
        for id, kind in (("toolu_1", "cats"), ("toolu_2", "dogs"))
    ]
    user, assistant, first, second, asked, answered, thanks = body["messages"][2:]
    assert body["messages"][:2] == [
        {"role": "system", "content": "Be brief."},
        {"role": "system", "content": [{"type": "text", "text": "Be right."}]},
    ]
    assert [part["type"] for part in user["content"]] == ["text", "image_url", "image_url", "image", "document"]
    assert user["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBORw0KGgo="
    said = {"role": "assistant", "content": "I see a cat.", "reasoning_content": "A cat."}
    assert assistant == {**said, "tool_calls": calls}
    assert first == {"role": "tool", "tool_call_id": "toolu_1", "content": "1"}
    assert [part["type"] for part in second["content"]] == ["text", "image_url"]
    assert asked == {"role": "user", "content": [{"type": "text", "text": "And now?"}]}
    assert (answered["content"], thanks["content"]) == ("One.", "Thanks")
    function = {"name": "count", "description": "Count.", "parameters": SCHEMA, "strict": True}
    assert body["tools"][0]["function"] == function
    assert body["tool_choice"] == {"type": "function", "function": {"name": "count"}}
    assert (body["parallel_tool_calls"], body["stop"], body["user"]) == (False, ["END"], "u1")
    assert body["reasoning_effort"] == "low"
    assert body["response_format"]["json_schema"] == {"name": "answer", "schema": SCHEMA, "strict": True}


# -- replies ----------------------------------------------------------------------------------------------


@given(replies())
def test_completions_and_messages_read_the_reply_that_is_written(reply: ChatReply) -> None:
    assert completions.read_reply(200, json.dumps(completions.write_reply(reply, LABEL)), OTHER, FAILURES) == reply
    read = messages.read_reply(200, json.dumps(messages.write_reply(reply, LABEL)), ANTHROPIC, FAILURES)
    blocks = read.message.pop("content_blocks", [])
    assert [block["type"] for block in blocks][:1] == (["thinking"] if "reasoning_content" in reply.message else [])
    assert comparable(read.message) == comparable(reply.message)
    assert (read.finish_reason, read.usage, read.model) == (reply.finish_reason, reply.usage, reply.model)


def comparable(message: Message) -> Message:
    calls = [(call["id"], call["function"]) for call in message.get("tool_calls", ())]
    return {**message, "tool_calls": [(id, each["name"], json.loads(each["arguments"])) for id, each in calls]}


PLACE = {"document_index": 0, "document_title": None, "start_char_index": 0, "end_char_index": 3, "file_id": None}
CITATION = {"type": "char_location", "cited_text": "391", **PLACE}
BLOCKS: list[dict[str, Any]] = [
    {"type": "thinking", "thinking": "17 * 23 = " * 20, "signature": "c2lnbmVk"},
    {"type": "redacted_thinking", "data": "aGlkZGVu"},
    text("It is 391.", citations=[CITATION]),
    {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {"query": "17 * 23"}},
    {"type": "tool_use", "id": "toolu_1", "name": "say", "input": {"text": "391 " * 50}},
]
IN_BLOCKS = {**messages.assistant_message(BLOCKS), "role": "assistant"}
OF_ANTHROPIC = ChatReply(IN_BLOCKS, "tool_calls", Usage(9, 30, 3, 12, 1), "claude")


def test_blocks_of_a_model_with_the_same_api_are_answered_unchanged() -> None:
    written = messages.write_reply(OF_ANTHROPIC, LABEL)
    assert (written["content"], written["stop_reason"]) == (BLOCKS, "tool_use")
    assert messages.read_reply(200, json.dumps(written), ANTHROPIC, FAILURES) == OF_ANTHROPIC


# -- streams ----------------------------------------------------------------------------------------------


def answering(shape: ApiShape, reply: ChatReply, kind: type) -> Any:
    """An HTTP client that gets this reply for every request, streamed if it asks for that.

    `kind` is the official client's class of HTTP clients, from httpx or httpx2.
    """
    name = next(base.__module__ for base in kind.__mro__ if base.__module__ in ("httpx", "httpx2"))
    http = importlib.import_module(name)

    def answer(request: Any) -> Any:
        read = shape.read_request(read_body(request.content))
        written = json_bodies.write_answer(shape, read, reply, LABEL)
        return http.Response(200, content=written.body, headers={"Content-Type": written.content_type})

    return http.Client(transport=http.MockTransport(answer))


ASKED: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "17 * 23"}]}
KNOWS_SERVER_TOOLS = hasattr(anthropic.types, "ServerToolUseBlock")
KNOWS_STOP_DETAILS = "stop_details" in anthropic.types.Message.model_fields
"""False in older releases of the client, which leave such parts of a stream out."""


def blocks_of(message: dict[str, Any]) -> list[dict[str, Any]]:
    return [{name: value for name, value in block.items() if value is not None} for block in message["content"]]


def choice_of(completion: dict[str, Any]) -> dict[str, Any]:
    """The choice of a completion, without the positions of calls and without empty fields."""
    [choice] = completion["choices"]
    message = {name: value for name, value in choice["message"].items() if value}
    if "tool_calls" in message:
        message["tool_calls"] = [
            {**call, "index": None, "function": {**call["function"], "parsed_arguments": None}}
            for call in message["tool_calls"]
        ]
    return {"message": message, "finish_reason": choice["finish_reason"]}


REFUSED = ChatReply({"role": "assistant", "content": None, "refusal": "I will not"}, "stop", Usage(1, 2), "m")
FILTERED = ChatReply({"role": "assistant", "content": None}, "content_filter", Usage(1, 2), "m")
EMPTY = ChatReply({"role": "assistant", "content": ""}, None, None, None)


@example(REFUSED)
@example(FILTERED)
@example(EMPTY)
@given(replies() | st.just(OF_ANTHROPIC))
def test_the_openai_client_puts_a_stream_together_to_the_whole_reply(reply: ChatReply) -> None:
    with (
        answering(completions, reply, openai.DefaultHttpxClient) as http,
        OpenAI(base_url=URL, api_key="none", http_client=http) as client,
    ):
        whole = client.chat.completions.create(**ASKED).to_dict()
        with client.chat.completions.stream(**ASKED, stream_options={"include_usage": True}) as stream:
            stream.until_done()
            streamed = stream.current_completion_snapshot.to_dict()
    assert choice_of(streamed) == choice_of(whole)
    assert streamed.get("usage") == whole.get("usage")


@example(REFUSED)
@example(FILTERED)
@example(EMPTY)
@given(replies() | st.just(OF_ANTHROPIC) if KNOWS_SERVER_TOOLS else replies())
def test_the_anthropic_client_puts_a_stream_together_to_the_whole_reply(reply: ChatReply) -> None:
    with (
        answering(messages, reply, anthropic.DefaultHttpxClient) as http,
        Anthropic(base_url=URL, api_key="none", http_client=http) as client,
    ):
        whole = client.messages.create(**ASKED, max_tokens=9).to_dict(warnings=False)
        with client.messages.stream(**ASKED, max_tokens=9) as stream:
            streamed = stream.get_final_message().to_dict(warnings=False)
    assert blocks_of(streamed) == blocks_of(whole)
    kept = ("stop_reason", "stop_details", "usage") if KNOWS_STOP_DETAILS else ("stop_reason", "usage")
    assert [streamed.get(name) for name in kept] == [whole.get(name) for name in kept]


# -- Responses --------------------------------------------------------------------------------------------


def plain(content: Any) -> Any:
    """Content without marks for the cache, and a single text as a string."""
    if not isinstance(content, list):
        return content
    parts = [{key: value for key, value in part.items() if key != "cache_control"} for part in content]
    return parts[0]["text"] if len(parts) == 1 and parts[0]["type"] == "text" else parts


@given(REQUESTS)
def test_responses_read_the_request_that_is_written(request: ChatRequest) -> None:
    sampling = {key: value for key, value in request.sampling.items() if key != "stop"}  # which they lack
    body = json.loads(responses.write_request(replace(request, sampling=sampling), OPENAI))
    more = {"instructions": "Be brief.", "seed": 3, "metadata": {"of": "a trace"}, "stream": True}
    read = responses.read_request({**body, **more})
    expected = [{**message, "content": plain(message["content"])} for message in request.messages]
    for message in expected:
        message.pop("is_error", None)
    if sampling.get("response_format") == {"type": "text"}:  # the default
        del sampling["response_format"]
    tools = [{"type": "function", "function": {"strict": False, **tool["function"]}} for tool in request.tools]
    assert list(read.chat.messages) == [{"role": "system", "content": "Be brief."}, *expected]
    assert (read.chat.tools, read.chat.sampling, read.chat.seed, read.stream) == (tools, sampling, 3, True)


@given(replies() | st.just(OF_ANTHROPIC))
def test_responses_read_a_reply_that_comes_back_as_input(reply: ChatReply) -> None:
    items = responses.write_reply(reply, LABEL)["output"]
    question = {"role": "user", "content": "17 * 23"}
    read = responses.read_request({"input": [question, *items]}).chat
    assert list(read.messages) == [question, reply.message]


def responses_of_openai(reply: ChatReply) -> tuple[dict[str, Any], dict[str, Any]]:
    """The response as the openai client puts it together from a stream, and as it gets it whole."""
    with (
        answering(responses, reply, openai.DefaultHttpxClient) as http,
        OpenAI(base_url=URL, api_key="none", http_client=http) as client,
    ):
        whole = client.responses.create(model="m", input="17 * 23").to_dict()
        with client.responses.stream(model="m", input="17 * 23") as stream:
            events = list(stream)
    numbers = [event.sequence_number for event in events]
    assert numbers == list(range(len(events)))
    texts: dict[str, str] = {}
    for each in events:
        if each.type.endswith(".delta"):
            data = each.to_dict()
            texts[str(data["item_id"])] = texts.get(str(data["item_id"]), "") + str(data["delta"])
    said = {str(item["id"]): text for item in whole["output"] if (text := said_in(item))}  # type: ignore[attr-defined]
    assert texts == said
    last: Any = events[-1]
    return last.response.to_dict(), whole


def said_in(item: dict[str, Any]) -> str:
    if item["type"] == "function_call":
        return str(item["arguments"])
    return "".join(str(part.get("text") or part.get("refusal")) for part in item["content"])


@given(replies() | st.just(OF_ANTHROPIC))
def test_the_openai_client_puts_a_stream_together_to_the_whole_response(reply: ChatReply) -> None:
    streamed, whole = responses_of_openai(reply)
    assert without_parsed(streamed) == without_parsed(whole)
    assert reply.usage is not None
    usage = (reply.usage.input_tokens, reply.usage.output_tokens)
    assert (whole["usage"]["input_tokens"], whole["usage"]["output_tokens"]) == usage


def without_parsed(value: Any) -> Any:
    """A response without what the client itself adds to a stream."""
    if isinstance(value, dict):
        return {key: without_parsed(item) for key, item in value.items() if key not in ("parsed", "parsed_arguments")}
    return [without_parsed(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize(
    ("reply", "status", "reason"),
    [
        (REFUSED, "completed", None),
        (ChatReply({"role": "assistant", "content": "17 *"}, "length", Usage(1, 2)), "incomplete", "max_output_tokens"),
        (ChatReply({"role": "assistant", "content": None}, "content_filter"), "incomplete", "content_filter"),
    ],
)
def test_a_response_that_is_cut_off_is_incomplete(reply: ChatReply, status: str, reason: str | None) -> None:
    streamed, whole = responses_of_openai(reply)
    assert without_parsed(streamed) == without_parsed(whole)
    assert whole["status"] == status
    assert (whole["incomplete_details"] or {}).get("reason") == reason


SHAPES = [completions, messages, responses]


@pytest.mark.parametrize("shape", SHAPES)
@given(raw=BODIES_OF_REQUESTS)
def test_any_body_is_read_or_refused(shape: ApiShape, raw: bytes) -> None:
    with suppress(ApiError):
        body = read_body(raw)
        before = json.dumps(body)
        try:
            chat = read_served(shape, body).chat
        finally:
            assert json.dumps(body) == before, "a body may be logged or repeated, so it must stay as it is"
        assert all(isinstance(message, dict) and isinstance(message["role"], str) for message in chat.messages)
        completions.write_request(chat, OTHER)
        with suppress(TypeError, ValueError):  # Messages refuse some that completions have
            messages.write_request(chat, OTHER)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("read", [completions.read_reply, messages.read_reply])
@given(body=REPLIED)
def test_any_reply_that_was_read_is_written(shape: ApiShape, read: Any, body: bytes) -> None:
    try:
        reply = read(200, body.decode(), OTHER, FAILURES)
    except ModelError:
        return
    json.dumps(shape.write_reply(reply, LABEL), allow_nan=False)
    assert all(event.endswith(b"\n\n") for event in shape.write_events(reply, LABEL))
