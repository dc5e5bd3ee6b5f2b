"""Cancelled requests, the errors of others, and the probe, with the real client against a real server."""

from __future__ import annotations

import asyncio
import traceback

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models import probe
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.retry import send
from tests import servers
from tests.clocks import ended
from tests.raised import raised_by
from tests.servers import Behaviour, ChatServer
from tests.unit.models.talking import CHAT_CLIENTS, CLIENT, CLIENTS, PROMPT, model_at

TIMEOUT_S = 60.0
GOOD = servers.reply("42")

pytestmark = pytest.mark.parametrize("client", CLIENTS, indirect=True)


async def test_cancelling_ends_an_open_request() -> None:
    with ChatServer(servers.never()) as server:
        async with model_at(server.base_url) as model:
            task = asyncio.create_task(model.chat(ChatRequest(messages=PROMPT)))
            await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 1)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await ended(task)
            await asyncio.to_thread(server.wait_for, lambda server: server.in_flight == 0)
    assert len(server.requests) == 1


async def test_an_error_does_not_keep_the_answer_that_it_is_about() -> None:
    with ChatServer(servers.body("x" * 10**6)) as server:
        async with model_at(server.base_url) as model:
            error = await raised_by(ModelError, send(model, ChatRequest(messages=PROMPT), TIMEOUT_S))
    assert error.__context__ is None
    kept = [value for frame, _ in traceback.walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    assert not [value for value in kept if isinstance(value, (str, bytes, bytearray)) and len(value) > 10_000]


async def probed(server: ChatServer) -> ModelError | None:
    async with model_at(server.base_url, path="m") as model:
        return await probe(model, timeout_s=TIMEOUT_S)


async def test_the_probe_is_one_tiny_request_bound_by_the_key_that_the_server_takes() -> None:
    with ChatServer(GOOD) as server:
        assert await probed(server) is None
    assert server.bodies == [{"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 16}]
    message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
    with ChatServer(servers.status(400, {"error": {"message": message}}), GOOD) as server:
        assert await probed(server) is None
    if CLIENT.name in CHAT_CLIENTS:
        bounds = [{key: body[key] for key in body if "tokens" in key} for body in server.bodies]
        assert bounds == [{"max_tokens": 16}, {"max_completion_tokens": 16}]


@pytest.mark.parametrize(
    ("behaviour", "found"),
    [
        (servers.status(401), ("provider", "always")),
        (servers.status(404), ("provider", "until_success")),
        (servers.status(400), ("model", "no")),
        (servers.status(429, retry_after="60"), None),
        (servers.cut_connection(), None),
    ],
    ids=["401", "404", "400", "429", "cut"],
)
async def test_the_probe_reports_what_every_request_may_meet_and_ignores_what_passes(
    behaviour: Behaviour, found: tuple[str, str] | None
) -> None:
    with ChatServer(behaviour) as server:
        error = await probed(server)
    assert (error and (error.boundary, error.systemic)) == found
    assert len(server.requests) == 1
