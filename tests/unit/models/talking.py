"""One request to a scripted server, by whichever client the test is for: `CLIENT.name`, set by a fixture."""

from __future__ import annotations

import importlib.util
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Literal

from msgspec.structs import replace

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import create
from pytest_osmosis.models.base import ChatReply, ChatRequest, Message, Model
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests.raised import raised_by
from tests.servers import Behaviour, ChatServer

ClientName = Literal["openai", "light", "anthropic", "litellm"]

HAS_LITELLM = importlib.util.find_spec("litellm") is not None
"""True under `make test-litellm`: LiteLLM needs another version of openai than the other tests."""
CHAT_CLIENTS: tuple[ClientName, ...] = ("openai", "light")
DIRECT_CLIENTS: tuple[ClientName, ...] = (*CHAT_CLIENTS, "anthropic")
CLIENTS: tuple[ClientName, ...] = ("litellm",) if HAS_LITELLM else DIRECT_CLIENTS
KEY = "sk-a-key-of-some-length"
PROMPT: list[Message] = [{"role": "user", "content": "17 * 23"}]
TOOL = {"type": "function", "function": {"name": "multiply", "parameters": {"type": "object"}}}


@dataclass
class Current:
    name: ClientName


CLIENT = Current("light")


def key_of(headers: Mapping[str, str]) -> str | None:
    """The key in the headers of a request, wherever the client put it."""
    return headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ") or None


@asynccontextmanager
async def created(target: ModelTarget, environ: Any = None, max_in_flight: int = 4) -> AsyncIterator[Model]:
    """The model of a target, closed in the end."""
    model = create(target, environ or {}, max_in_flight)
    try:
        yield model
    finally:
        await model.close()


@asynccontextmanager
async def model_at(
    base_url: str,
    *,
    key: str | None = None,
    path: str = "Qwen/Qwen3-8B",
    headers: Mapping[str, str] | None = None,
    max_in_flight: int = 4,
    max_response_mb: int = 64,
) -> AsyncIterator[Model]:
    """A model at this address, closed in the end. LiteLLM gets it as OpenAI's address, and always a key."""
    environ = {"MY_KEY": key} if key else {}
    table = ModelTable(
        base_url=base_url,
        api_key_env="MY_KEY" if key else None,
        headers=headers or {},
        client=CLIENT.name,
        max_response_mb=max_response_mb,
    )
    if CLIENT.name == "litellm":
        environ = {"MY_KEY": key or "sk-any", "OPENAI_BASE_URL": base_url}
        table = replace(table, base_url=None, api_key_env="MY_KEY")
        path = f"openai/{path}"
    async with created(resolve(path, table, environ, where="x.toml:1"), environ, max_in_flight) as model:
        yield model


async def ask(server: ChatServer, key: str | None = None, **fields: Any) -> ChatReply:
    request = ChatRequest(**{"messages": PROMPT, **fields})
    async with model_at(server.base_url, key=key) as model:
        return await model.chat(request)


async def sent(**fields: Any) -> dict[str, Any]:
    with ChatServer() as server:
        await ask(server, **fields)
    return server.bodies[0]


async def reply_of(behaviour: Behaviour) -> ChatReply:
    with ChatServer(behaviour) as server:
        return await ask(server)


async def error_at(base_url: str, **fields: Any) -> Any:
    """The error of one request to this address; `fields` are those of the request."""
    async with model_at(base_url) as model:
        return await raised_by(ModelError, model.chat(ChatRequest(**{"messages": PROMPT, **fields})))


async def failure_of(behaviour: Behaviour, key: str | None = None) -> Any:
    """The error of one request, which must have been one request only."""
    with ChatServer(behaviour) as server:
        error = await raised_by(ModelError, ask(server, key))
    assert len(server.requests) == 1
    return error


def kind(error: ModelError) -> tuple[str, bool, str, int | None]:
    """The boundary of a failure, and whether it is retried or systemic."""
    return error.boundary, error.retryable, error.systemic, error.status
