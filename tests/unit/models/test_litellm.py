"""LiteLLM as a client, beyond tests/unit/models/test_clients.py: other APIs than OpenAI's, and errors of its own.

These run in the environment of `make test-litellm` only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest, Usage
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests import servers
from tests.raised import raised_by
from tests.servers import Behaviour, ChatServer
from tests.unit.models.talking import HAS_LITELLM, KEY, PROMPT, created, key_of, kind

pytestmark = pytest.mark.skipif(not HAS_LITELLM, reason="LiteLLM is not installed here: make test-litellm")


async def asked(model_path: str, environ: Mapping[str, str], **fields: object) -> ChatReply:
    target = resolve(model_path, ModelTable(client="litellm"), environ, where="x.toml:1")
    async with created(target, environ) as model:
        return await model.chat(ChatRequest(messages=PROMPT, **fields))  # type: ignore[arg-type]


def anthropic_at(server: ChatServer) -> dict[str, str]:
    return {"ANTHROPIC_BASE_URL": server.base_url, "ANTHROPIC_API_KEY": KEY}


def openai_at(server: ChatServer) -> dict[str, str]:
    return {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}


async def failed(model_path: str, behaviour: Behaviour) -> Any:
    with ChatServer(behaviour) as server:
        return await raised_by(ModelError, asked(model_path, anthropic_at(server) | openai_at(server)))


async def test_anthropics_messages_are_read_as_chat_messages() -> None:
    with ChatServer(servers.tool_call("multiply", {"a": 17})) as server:
        reply = await asked("anthropic/claude", anthropic_at(server))
    assert server.requests[0].path == "/v1/messages"
    assert server.bodies[0]["model"] == "claude"
    assert [call["function"]["name"] for call in reply.tool_calls] == ["multiply"]
    assert (reply.finish_reason, reply.usage and reply.usage.total_tokens) == ("tool_calls", Usage(7, 3).total_tokens)


async def test_a_redirect_carries_no_key_to_another_host() -> None:
    """Anthropic's key has a header of its own, which httpx would send along."""
    with ChatServer() as elsewhere:
        location = f"http://localhost:{elsewhere.port}/v1/messages"
        error = await failed("anthropic/claude", servers.redirect(location, 308))
    assert elsewhere.requests == []
    assert kind(error) == ("provider", False, "until_success", 308)
    assert f'a redirect to "{location}"' in str(error)


async def test_a_refusal_of_chat_completions_says_what_the_config_takes() -> None:
    message = "Function tools are not supported in /v1/chat/completions. Please use /v1/responses instead."
    error = await failed("openai/gpt-x", servers.status(400, {"error": {"message": message}}))
    assert kind(error) == ("provider", False, "until_success", 400)
    assert str(error).endswith("Please use /v1/responses instead; leave out [model] client")


@pytest.mark.parametrize(
    ("behaviour", "expected", "text"),
    [
        (servers.status(429, retry_after="7"), ("provider", True, "no", 429), "Too Many Requests: scripted 429"),
        (servers.status(400), ("model", False, "no", 400), "Bad Request: scripted 400"),
        (
            servers.data({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}}),
            ("provider", True, "no", 529),
            "the server answered 200 with error 529: busy",
        ),
        (servers.data({"content": "what"}), ("provider", True, "no", 200), "an answer that LiteLLM cannot read"),
    ],
)
async def test_errors_of_another_api_are_read_from_answers(behaviour: Behaviour, expected: object, text: str) -> None:
    error = await failed("anthropic/claude", behaviour)
    assert kind(error) == expected
    assert text in str(error)
    assert error.retry_after_s == (7.0 if error.status == 429 else None)


@pytest.mark.parametrize(
    ("model", "sampling", "text"),
    [
        ("no-such-provider/m", {}, "LLM Provider NOT provided"),
        ("azure/gpt-5", {}, "Missing credentials"),
        ("openai/gpt-5", {"temperature": 0.5}, "temperature"),
    ],
)
async def test_a_request_that_litellm_does_not_send_is_reported_as_that(model: str, sampling: Any, text: str) -> None:
    target = ModelTarget("litellm", model, client="litellm")
    async with created(target, {"AZURE_API_KEY": "only for the check"}) as client:
        error = await raised_by(ModelError, client.chat(ChatRequest(messages=PROMPT, sampling=sampling)))
    assert kind(error) == ("provider", False, "until_success", None)
    assert str(error).startswith("no request was sent: ")
    assert text in str(error)


async def test_only_openais_own_address_gets_its_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteLLM knows more variables of addresses than the ones that we show."""
    with ChatServer() as elsewhere, ChatServer() as server:
        monkeypatch.setenv("OPENAI_API_BASE", elsewhere.base_url)
        await asked("openai/m", openai_at(server))
    assert elsewhere.requests == []
    assert key_of(server.requests[0].headers) == KEY


async def test_usage_that_the_server_did_not_send_is_unknown() -> None:
    with ChatServer(servers.reply("42", usage=None)) as server:
        reply = await asked("openai/m", openai_at(server))
    assert (reply.content, reply.usage) == ("42", None)
