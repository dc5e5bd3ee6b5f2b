"""The demo server through every client: the same seed gets the same conversation, and so an eval the same scores."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp.test_utils import TestServer

from pytest_osmosis.demo import Disturbances, application
from pytest_osmosis.models.base import ChatRequest, Message
from pytest_osmosis.models.embedded import reply_to
from tests.unit.models.talking import CLIENT, CLIENTS, model_at

PARAMETERS = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
MULTIPLY: dict[str, Any] = {"type": "function", "function": {"name": "multiply", "parameters": PARAMETERS}}


@pytest.mark.parametrize("client", CLIENTS)
async def test_every_client_gets_the_conversations_of_the_embedded_model(
    client: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(CLIENT, "name", client)
    sampling, said = {"temperature": 1.0, "accuracy": 0.5}, set()
    async with (
        TestServer(application(Disturbances())) as server,
        model_at(str(server.make_url("/v1")), path="demo/arithmetic") as model,
    ):
        for seed in range(15):
            messages: list[Message] = [{"role": "user", "content": "What is 17 * 23?"}]
            for result in ("391", None):
                request = ChatRequest(messages, [MULTIPLY], sampling, seed, run="row0-run0")
                reply, embedded = await model.chat(request), reply_to(request)
                assert (reply.content, reply.tool_calls) == (embedded.content, embedded.tool_calls)
                assert (reply.finish_reason, reply.usage) == (embedded.finish_reason, embedded.usage)
                messages = [*messages, reply.message]
                messages += [
                    {"role": "tool", "tool_call_id": call["id"], "content": result} for call in reply.tool_calls
                ]
            said.add(reply.content)
    assert len(said) > 1, "some are wrong"
