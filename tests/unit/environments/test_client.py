"""The client that an environment gets."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any

import pytest

from pytest_osmosis.addons.verifiers.client import client_for
from pytest_osmosis.models.base import ChatReply, Message, Usage


class TheirClient:
    """The class of clients that an environment of verifiers takes."""

    def __init__(self, client: object) -> None:
        self.given = client


async def ask(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], sampling: Mapping[str, Any], state: object
) -> ChatReply:
    del messages, tools, sampling, state
    message = {"role": "assistant", "content": None, "refusal": "No."}
    return ChatReply(message, finish_reason="stop", usage=Usage(5, 7, reasoning_tokens=3))


@pytest.fixture(autouse=True)
def legacy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules of verifiers 0.3 as an environment has imported them."""
    module = ModuleType("verifiers.legacy.clients.openai_chat_completions_client")
    module.OpenAIChatCompletionsClient = TheirClient  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def test_a_client_is_of_their_class_with_the_chat_completions_of_openai_and_replies_as_each_release_reads() -> None:
    client = client_for(ask, lambda: ("http://127.0.0.1:1/v1", "key"))
    assert client.chat.completions is client.client.chat.completions
    assert str(client.client.base_url) == "http://127.0.0.1:1/v1/"
    reply = asyncio.run(client.get_native_response([{"role": "user", "content": "hi"}], "m", {}))
    [choice] = reply.choices
    assert (choice.message.content, choice.message.refusal) == (None, "No.")
    assert choice.model_extra == {}
    assert reply.usage["completion_tokens_details"] == {"reasoning_tokens": 3}
    asyncio.run(client.close())
    assert isinstance(client, TheirClient)
