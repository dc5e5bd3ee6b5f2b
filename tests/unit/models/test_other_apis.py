"""The clients of /completions and of vLLM's token ids, against real servers that answer as those do."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Usage
from pytest_osmosis.models.targets import resolve
from tests import servers
from tests.raised import raised_by
from tests.servers import USAGE, Behaviour, ChatServer, Exchange
from tests.unit.models.talking import TOOL, created


async def ask(base_url: str, api: Any, *requests: ChatRequest) -> list[ChatReply]:
    table = ModelTable(base_url=base_url, api_client_type=api, api_key_env="MY_KEY", headers={"X-Team": "evals"})
    async with created(resolve("base", table, {}, where="x"), {"MY_KEY": "sk-1234567890"}) as model:
        return [await model.chat(request) for request in requests]


def text_answer(text: Any = " 4", **fields: Any) -> Behaviour:
    choices = [{"index": 0, "text": text, "finish_reason": "stop", **fields}]
    return servers.data({"id": "c", "object": "text_completion", "model": "base", "choices": choices, "usage": USAGE})


# -- /completions --------------------------------------------------------------------------------------------


async def test_a_conversation_is_sent_as_one_text_and_answered_by_text() -> None:
    messages: list[Message] = [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": [{"type": "text", "text": "2 + 2"}, {"type": "text", "text": "="}]},
        {"role": "assistant", "content": None},
    ]
    request = ChatRequest(messages, sampling={"max_tokens": 5, "temperature": 0.5}, seed=3, headers={"X-Row": "1"})
    with ChatServer(text_answer()) as server:
        (reply,) = await ask(server.base_url, "openai_completions", request)
    (seen,) = server.requests
    assert seen.path == "/v1/completions"
    settings = {"seed": 3, "max_tokens": 5, "temperature": 0.5}
    assert seen.body == {"model": "base", "prompt": "Add.\n\n2 + 2 =\n\n", **settings}
    headers = {"authorization": "Bearer sk-1234567890", "x-team": "evals", "x-row": "1"}
    assert headers.items() <= seen.headers.items()
    assert reply == ChatReply({"role": "assistant", "content": " 4"}, "stop", Usage(7, 3), "base")


@pytest.mark.parametrize(
    ("request_", "text"),
    [
        (ChatRequest([{"role": "user", "content": "x"}], tools=[TOOL]), "takes no tools"),
        (ChatRequest([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]), "text only"),
    ],
)
async def test_what_is_no_text_is_the_callers_error_and_is_not_sent(request_: ChatRequest, text: str) -> None:
    with ChatServer(text_answer()) as server:
        with pytest.raises(ValueError, match=text):
            await ask(server.base_url, "openai_completions", request_)
    assert server.requests == []


@pytest.mark.parametrize(
    ("behaviour", "boundary", "text"),
    [
        (servers.data({"choices": []}), "model", "no choices"),
        (servers.data({"choices": [{"finish_reason": "stop"}]}), "model", 'a choice without "text"'),
        (text_answer(5), "provider", "text = a number"),
        (text_answer("", finish_reason="error"), "provider", 'finish_reason "error"'),
        (servers.html(), "provider", "is not JSON"),
        (servers.status(404), "provider", "404"),
    ],
)
async def test_an_answer_that_is_none_is_an_error(behaviour: Behaviour, boundary: str, text: str) -> None:
    with ChatServer(behaviour) as server:
        asked = ask(server.base_url, "openai_completions", ChatRequest([{"role": "user", "content": "x"}]))
        error = await raised_by(ModelError, asked)
    assert (error.boundary, text in str(error)) == (boundary, True)


# -- token ids -----------------------------------------------------------------------------------------------

END, GAP, USER, TOOL_ID, ASSISTANT = 2, 9, 101, 102, 103
"""Token ids of a template: each message is its role, one id for its text, `END` and `GAP`."""


class TokenServer:
    """A server like vLLM, whose texts are tokens of one id each."""

    def __init__(self, finish_reason: str = "stop", *, ids: bool = True) -> None:
        self.finish_reason = finish_reason
        self.ids = ids
        self.text_ids: dict[str, int] = {}

    def tokens(self, messages: list[dict[str, Any]], *, prompts: bool = True) -> list[int]:
        roles = {"user": USER, "tool": TOOL_ID, "assistant": ASSISTANT}
        found: list[int] = []
        for message in messages:
            text = str(message.get("content"))
            found += [roles[message["role"]], self.text_ids.setdefault(text, 1000 + len(self.text_ids)), END, GAP]
        return [*found, ASSISTANT] if prompts else found

    async def __call__(self, exchange: Exchange) -> web.StreamResponse:
        body = exchange.seen.body
        if exchange.seen.path == "/tokenize":
            tokens = self.tokens(body["messages"], prompts=body.get("add_generation_prompt", True))
            return web.json_response({"count": len(tokens), "max_model_len": 4096, "tokens": tokens})
        answer = f"answer {len(body['messages'])}"
        prompt = body.get("tokens") or self.tokens(body["messages"])
        own = {"token_ids": [self.text_ids.setdefault(answer, 1000 + len(self.text_ids)), END]} if self.ids else {}
        message = {"role": "assistant", "content": answer}
        choice = {"index": 0, "message": message, "finish_reason": self.finish_reason, **own}
        return web.json_response({"model": "base", "choices": [choice], "usage": USAGE, "prompt_token_ids": prompt})


def turns(*added: Message, run: str = "row0-run0") -> list[ChatRequest]:
    first: list[Message] = [{"role": "user", "content": "question"}]
    second: list[Message] = [*first, {"role": "assistant", "content": "answer 1"}, *added]
    third = [*second, {"role": "assistant", "content": f"answer {len(second)}"}, {"role": "user", "content": "more"}]
    return [ChatRequest(messages, sampling={"max_tokens": 5}, run=run) for messages in (first, second, third)]


def paths(server: ChatServer) -> list[str]:
    return [request.path for request in server.requests if request.path != "/tokenize"]


CHAT, TOKENS = "/v1/chat/completions", "/v1/chat/completions/tokens"
ANSWERS: tuple[Message, ...] = (
    {"role": "tool", "tool_call_id": "c1", "content": "result"},
    {"role": "user", "content": "go"},
)


@pytest.mark.parametrize("added", [ANSWERS, ANSWERS[1:]], ids=["tool", "user"])
async def test_further_requests_continue_from_the_tokens_of_the_last_answer(added: tuple[Message, ...]) -> None:
    behave = TokenServer()
    with ChatServer(behave) as server:
        replies = await ask(server.base_url, "openai_chat_completions_token", *turns(*added))
    assert paths(server) == [CHAT, TOKENS, TOKENS]
    first, second, third = (request.body for request in server.requests if request.path != "/tokenize")
    assert (first["logprobs"], first["return_token_ids"], first["max_tokens"]) == (True, True, 5)
    assert second["tokens"] == behave.tokens(second["messages"]), "the ids are those of the whole conversation"
    assert third["tokens"] == behave.tokens(third["messages"])
    assert [reply.content for reply in replies] == ["answer 1", f"answer {2 + len(added)}", f"answer {4 + len(added)}"]
    asked = next(request for request in server.requests if request.path == "/tokenize")
    assert asked.body["messages"][0]["role"] == "assistant"
    assert asked.headers["x-team"] == "evals"


async def untokenized(exchange: Exchange) -> web.StreamResponse:
    return web.Response(status=404) if exchange.seen.path == "/tokenize" else await TokenServer()(exchange)


@pytest.mark.parametrize(
    ("behave", "added"),
    [
        pytest.param(untokenized, ANSWERS, id="a server without that address"),
        pytest.param(TokenServer("length"), ANSWERS, id="an answer that was cut off"),
        pytest.param(TokenServer(ids=False), ANSWERS, id="a server without ids"),
        pytest.param(TokenServer(), ANSWERS[:1] * 2 + ({"role": "assistant", "content": "x"},), id="an answer last"),
        pytest.param(
            TokenServer(), ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]},), id="a picture"
        ),
    ],
)
async def test_where_tokens_cannot_go_on_messages_are_sent(behave: Behaviour, added: tuple[Message, ...]) -> None:
    first, second, _ = turns(*added)
    with ChatServer(behave) as server:
        await ask(server.base_url, "openai_chat_completions_token", first, second)
    assert paths(server) == [CHAT, CHAT]


async def test_runs_do_not_share_their_tokens() -> None:
    first, second, _ = turns(*ANSWERS)
    _, other, _ = turns(*ANSWERS, run="row1-run0")
    with ChatServer(TokenServer()) as server:
        await ask(server.base_url, "openai_chat_completions_token", first, other, second)
    assert paths(server) == [CHAT, CHAT, TOKENS]
