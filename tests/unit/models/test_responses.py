"""OpenAI's Responses, asked through both clients that speak it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from msgspec.structs import replace

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.evals.eval_models import resolve_model
from pytest_osmosis.models.base import ITEMS, ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests.raised import raised_by
from tests.servers import Behaviour, ChatServer, by_api, completion, data, responses_reply, status
from tests.unit.models.talking import CHAT_CLIENTS, CLIENT, PROMPT, TOOL, created, kind

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Multiply."}]}
THOUGHT = {**REASONING, "encrypted_content": "gAAAA"}
CALL = {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "multiply", "arguments": '{"a": 17}'}
CHAT_CALL = {"id": "call_1", "type": "function", "function": {"name": "multiply", "arguments": '{"a": 17}'}}


def text(said: str, **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": said, "annotations": []}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content, **fields}


pytestmark = pytest.mark.parametrize("client", CHAT_CLIENTS, indirect=True)


def explicit(base_url: str) -> ModelTarget:
    """The target of a config that chooses Responses at its own server."""
    table = ModelTable(base_url=base_url, client=CLIENT.name, api_client_type="openai_responses")
    return resolve("served", table, {}, where="x.toml:1")


async def ask(server: ChatServer, **fields: Any) -> ChatReply:
    async with created(explicit(server.base_url)) as model:
        return await model.chat(ChatRequest(**{"messages": PROMPT, **fields}))


async def sent(**fields: Any) -> dict[str, Any]:
    with ChatServer(data(responses_reply(text("42")))) as server:
        await ask(server, **fields)
    assert [seen.path for seen in server.requests] == ["/v1/responses"]
    return server.bodies[0]


async def reply_of(*items: Any, **fields: Any) -> ChatReply:
    with ChatServer(data(responses_reply(*items, **fields))) as server:
        return await ask(server)


async def test_a_request_stores_nothing_and_asks_for_the_reasoning() -> None:
    stateless = {"store": False, "include": ["reasoning.encrypted_content"]}
    assert await sent(seed=7) == {"model": "served", "input": PROMPT, **stateless}, "and has no seed"


async def test_messages_become_items_and_a_function_is_strict_only_if_it_says_so() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA==", "detail": "low"}}
    messages: list[Message] = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "17 * 23"}, image]},
        {"role": "assistant", "content": "I multiply.", "tool_calls": [CHAT_CALL]},
        {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "391"}]},
        {"role": "assistant", "content": None, "refusal": "No."},
        {"role": "user", "content": "Why?", "name": "Eve"},
    ]
    shown = {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"}
    assert (await sent(messages=messages))["input"] == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "17 * 23"}, shown]},
        {"role": "assistant", "content": "I multiply."},
        {"type": "function_call", "call_id": "call_1", "name": "multiply", "arguments": '{"a": 17}'},
        {"type": "function_call_output", "call_id": "call_1", "output": [{"type": "input_text", "text": "391"}]},
        {"role": "assistant", "content": "No."},
        {"role": "user", "content": "Why?"},
    ]
    strict = {"type": "function", "function": {"name": "f", "strict": True, "parameters": {"type": "object"}}}
    bare = {"type": "function", "function": {"name": "g", "description": "No arguments."}}
    nothing = {"type": "object", "properties": {}}
    assert (await sent(tools=[TOOL, strict, bare, {"type": "web_search"}]))["tools"] == [
        {"type": "function", "name": "multiply", "parameters": {"type": "object"}, "strict": False},
        {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
        {"type": "function", "name": "g", "description": "No arguments.", "parameters": nothing, "strict": False},
        {"type": "web_search"},
    ]


async def test_sampling_gets_the_names_of_the_api() -> None:
    schema = {"name": "product", "schema": {"type": "object"}}
    body = await sent(
        sampling={
            "max_tokens": 99,
            "temperature": 0.5,
            "reasoning_effort": "low",
            "reasoning": {"summary": "auto"},
            "verbosity": "low",
            "response_format": {"type": "json_schema", "json_schema": schema},
            "tool_choice": {"type": "function", "function": {"name": "multiply"}},
            "service_tier": "flex",
        }
    )
    assert {name: body[name] for name in body if name not in ("model", "input", "store", "include")} == {
        "max_output_tokens": 99,
        "temperature": 0.5,
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low", "format": {"type": "json_schema", **schema}},
        "tool_choice": {"type": "function", "name": "multiply"},
        "service_tier": "flex",
    }


@pytest.mark.parametrize("key", ["stop", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs"])
async def test_a_key_that_the_api_lacks_is_named(key: str) -> None:
    with ChatServer() as server, pytest.raises(ModelError, match=f"has no {key}: leave it out, or set ") as caught:
        await ask(server, sampling={key: 1})
    assert server.requests == []
    assert kind(caught.value) == ("provider", False, "until_success", None), "no run says anything about the model"


async def test_items_become_a_message_that_has_them_only_if_chat_completions_cannot_represent_it() -> None:
    reply = await reply_of(THOUGHT, text("I multiply."), CALL)
    assert reply.message == {
        "role": "assistant",
        "content": "I multiply.",
        "tool_calls": [CHAT_CALL],
        "reasoning_content": "Multiply.",
        ITEMS: [THOUGHT, text("I multiply."), CALL],
    }
    assert (reply.finish_reason, reply.model, reply.usage) == ("tool_calls", "served-model", Usage(7, 3, 2, 1))
    assert (await reply_of(text("42"))).message == {"role": "assistant", "content": "42"}
    assert (await reply_of(CALL)).message == {"role": "assistant", "content": None, "tool_calls": [CHAT_CALL]}
    phased = text("42", phase="final_answer")
    assert (await reply_of(phased)).message == {"role": "assistant", "content": "42", ITEMS: [phased]}


async def test_a_refusal_an_answer_that_is_cut_off_and_usage_that_is_not_whole() -> None:
    refused = await reply_of(text("", content=[{"type": "refusal", "refusal": "I will not."}]))
    assert refused.message == {"role": "assistant", "content": None, "refusal": "I will not."}
    for reason, finish in (("max_output_tokens", "length"), ("content_filter", "content_filter"), ("new", "new")):
        reply = await reply_of(text("4"), status="incomplete", incomplete_details={"reason": reason})
        assert (reply.content, reply.finish_reason) == ("4", finish)
    only_thought = await reply_of(THOUGHT, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert (only_thought.content, only_thought.finish_reason) == ("", "length")
    for usage in (None, {}, {"input_tokens": 7}, {"input_tokens": "7", "output_tokens": 3}):
        assert (await reply_of(text("42"), usage=usage)).usage is None


FAILED = {"status": "failed", "output": []}


def broken(code: str) -> dict[str, Any]:
    return responses_reply(**FAILED, error={"code": code, "message": "x"})


FAILURES: dict[str, tuple[Any, tuple[str, bool, str, int | None]]] = {
    "a server's error": (broken("server_error"), ("provider", True, "no", 500)),
    "a limit": (broken("rate_limit_exceeded"), ("provider", True, "no", 429)),
    "a prompt that is refused": (broken("invalid_prompt"), ("model", False, "no", 400)),
    "failed without an error": (responses_reply(**FAILED), ("provider", True, "no", 200)),
    "not done": (responses_reply(status="in_progress"), ("provider", True, "no", 200)),
    "no output": (responses_reply(output=None), ("model", False, "no", 200)),
    "output of another type": (responses_reply(output="42"), ("provider", True, "no", 200)),
    "an item that is none": (responses_reply("42"), ("provider", True, "no", 200)),
    "a call without a name": (responses_reply({**CALL, "name": None}), ("provider", True, "no", 200)),
    "somebody else's message": (responses_reply(text("42", role="user")), ("provider", True, "no", 200)),
    "content that is none": (responses_reply(text("", content="42")), ("provider", True, "no", 200)),
}


@pytest.mark.parametrize("name", FAILURES)
async def test_an_answer_that_is_none_fails(name: str) -> None:
    answer, expected = FAILURES[name]
    with ChatServer(data(answer)) as server:
        assert kind(await raised_by(ModelError, ask(server))) == expected


async def items_after(reply: ChatReply, **changes: Any) -> list[Any]:
    """The items that are sent for the message of a reply, with `changes` by user code."""
    return list((await sent(messages=[*PROMPT, {**reply.message, **changes}]))["input"][1:])


async def test_the_items_of_an_answer_go_back_unless_it_was_edited_or_nobody_stored_them() -> None:
    reply = await reply_of(THOUGHT, text("I multiply.", phase="commentary"), CALL)
    assert await items_after(reply) == [THOUGHT, text("I multiply.", phase="commentary"), CALL]
    reply = await reply_of(THOUGHT, text("I multiply."), CALL)
    call = {key: CALL[key] for key in ("type", "call_id", "name", "arguments")}
    assert await items_after(reply, content="Now.") == [{"role": "assistant", "content": "Now."}, call]
    assert await items_after(reply, tool_calls=None) == [{"role": "assistant", "content": "I multiply."}]
    assert await items_after(reply, **{ITEMS: "?"}) == [{"role": "assistant", "content": "I multiply."}, call]
    assert await items_after(reply, **{ITEMS: ["?"]}) == [{"role": "assistant", "content": "I multiply."}, call]
    reply = await reply_of(REASONING, text("42"))
    assert await items_after(reply) == [text("42")]


async def test_a_model_that_does_not_reason_is_asked_for_no_reasoning() -> None:
    refusal = status(400, {"error": {"message": "Encrypted content is not supported with this model."}})
    with ChatServer(refusal, data(responses_reply(text("42")))) as server:
        async with created(explicit(server.base_url)) as model:
            for _ in range(2):
                assert (await model.chat(ChatRequest(PROMPT))).content == "42"
    assert [body["include"] for body in server.bodies] == [["reasoning.encrypted_content"], [], []]


def at_openai(environ: Mapping[str, str] | None = None, **fields: Any) -> ModelTarget:
    return resolve("openai/gpt-x", ModelTable(client=CLIENT.name, **fields), environ or {}, where="x.toml:1")


def test_responses_are_the_default_at_openai_itself() -> None:
    assert at_openai().api == "auto"
    assert at_openai({"OPENAI_BASE_URL": "http://localhost:1/v1"}).api == "chat_completions"
    assert at_openai({"OPENAI_BASE_URL": "http://localhost:1/v1"}).max_tokens_key == "max_completion_tokens"
    assert at_openai(base_url="https://api.openai.com/v1").api == "chat_completions"
    assert at_openai(api_client_type="openai_chat_completions").api == "chat_completions"
    assert at_openai(api_client_type="openai_responses").api == "responses"
    assert (at_openai(api_client_type="openai_responses").client, at_openai().client) == (CLIENT.name, CLIENT.name)
    assert resolve("groq/m", ModelTable(), {}, where="").api == "chat_completions"
    assert resolve("openai/m", ModelTable(client="litellm"), {}, where="").api == "chat_completions"


async def asked_by_default(behaviour: Behaviour, *requests: ChatRequest) -> list[str]:
    """The paths that are asked by a model at OpenAI itself, which is this server."""
    with ChatServer(behaviour) as server:
        target = ModelTarget("openai", "gpt-x", server.base_url, client=CLIENT.name, api="auto")
        async with created(target) as model:
            for request in requests:
                await model.chat(request)
        return [seen.path.removeprefix("/v1") for seen in server.requests]


async def test_a_request_with_a_key_of_chat_completions_goes_there_or_is_an_error_with_tools() -> None:
    answers = by_api(completion({"role": "assistant", "content": "42"}), None, responses_reply(text("42")))
    requests = [
        ChatRequest(PROMPT, [TOOL]),
        ChatRequest(PROMPT, sampling={"stop": "."}),
        ChatRequest(PROMPT, seed=7),
        ChatRequest(PROMPT, sampling={"temperature": 1}),
    ]
    paths = ["/responses", "/chat/completions", "/chat/completions", "/responses"]
    assert await asked_by_default(answers, *requests) == paths
    for fields, name in (({"sampling": {"stop": "."}}, "stop"), ({"seed": 7}, "seed")):
        error = await raised_by(ModelError, asked_by_default(answers, ChatRequest(PROMPT, [TOOL], **fields)))
        assert kind(error) == ("provider", False, "until_success", None)
        assert f"has no {name}: leave it out" in str(error)


USE_RESPONSES = "Function tools with reasoning_effort are not supported for gpt-x in /v1/chat/completions. "
USE_RESPONSES += "Please use /v1/responses instead."


async def refused(code: int, message: str, target: ModelTarget) -> Any:
    """The error of a request with tools to a target at a server that refuses it."""
    with ChatServer(status(code, {"error": {"message": message}})) as server:
        async with created(replace(target, base_url=server.base_url)) as model:
            return await raised_by(ModelError, model.chat(ChatRequest(PROMPT, [TOOL])))


@pytest.mark.parametrize(
    ("code", "message"),
    [(400, USE_RESPONSES), (404, "This model is only supported in v1/responses and not in v1/chat/completions.")],
)
async def test_openais_refusal_of_chat_completions_says_what_to_set(code: int, message: str) -> None:
    entry = RegisteredEndpoint("current", "gpt-x", "http://localhost/v1", None)
    registry = Registry("endpoints.toml", {"current": (entry,)})
    for target in (
        resolve("gpt-x", ModelTable(base_url="http://localhost/v1", client=CLIENT.name), {}, where=""),
        resolve_model("current", ModelTable(client=CLIENT.name), {}, where="", registry=registry),
    ):
        error = await refused(code, message, target)
        assert kind(error) == ("provider", False, "until_success", code)
        advice = '; set [model] api_client_type = "openai_responses", without client'
        assert str(error).endswith(message.removesuffix(".") + advice)


async def test_who_asks_responses_is_not_told_to_do_so() -> None:
    error = await refused(400, "logprobs are not supported in /v1/responses", explicit("http://localhost/v1"))
    assert kind(error) == ("model", False, "no", 400)
    assert str(error).endswith("logprobs are not supported in /v1/responses")
