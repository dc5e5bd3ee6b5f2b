"""The day on which OpenAI shuts a model down, asked by both clients that speak its APIs."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.models import DESCRIPTION_S, shutdown_date
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests.clocks import LoopClock, ended
from tests.servers import Behaviour, ChatServer, body, cut_connection, data, html, never, status
from tests.unit.models.talking import CHAT_CLIENTS, KEY, created

DAY = date(2026, 12, 11)


@pytest.fixture(params=CHAT_CLIENTS)
def client(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def openais(server: ChatServer, client: Any, **table: Any) -> ModelTarget:
    environ = {"OPENAI_BASE_URL": server.base_url}
    return resolve("openai/gpt-5-mini", ModelTable(client=client, **table), environ, where="x.toml:1")


async def day_of(target: ModelTarget) -> date | None:
    async with created(target, {"OPENAI_API_KEY": KEY}) as model:
        return await shutdown_date(model)


async def told(client: str, answer: Behaviour) -> date | None:
    with ChatServer() as server:
        server.description = answer
        found = await day_of(openais(server, client))
        assert server.descriptions
        assert server.requests == []
    return found


@pytest.mark.parametrize("api", ["openai_chat_completions", "openai_responses"])
async def test_it_is_asked_for_with_the_key_under_the_name_of_the_model(client: str, api: Any) -> None:
    with ChatServer() as server:
        server.description = data({"id": "gpt-5-mini", "object": "model", "shutdown_date": "2026-12-11"})
        assert await day_of(openais(server, client, api_client_type=api)) == DAY
    assert [seen.path for seen in server.descriptions] == ["/v1/models/gpt-5-mini"]
    assert server.descriptions[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("value", ["2026-12-11", "2026-12-11T08:00:00Z", "2026-12-11T23:30:00-00:00", 1796947200])
async def test_a_date_and_a_timestamp_are_read(client: str, value: object) -> None:
    assert await told(client, data({"shutdown_date": value})) == DAY


@pytest.mark.parametrize("value", [None, "", "soon", 0, -1, True, 10**30, 1e400, 1796947200000, [], {"date": "2026"}])
async def test_anything_else_is_no_date(client: str, value: object) -> None:
    assert await told(client, data({"shutdown_date": value})) is None


@pytest.mark.parametrize(
    "answer",
    [status(404), status(405), status(401), status(500), html(), body("[]"), body("{"), body(""), cut_connection()],
    ids=["404", "405", "401", "500", "html", "list", "half", "empty", "cut"],
)
async def test_an_answer_without_one_says_nothing(client: str, answer: Behaviour) -> None:
    assert await told(client, answer) is None


async def test_a_server_that_is_silent_is_not_waited_for(client: str) -> None:
    with ChatServer() as server:
        server.description = never()
        clock = LoopClock()
        asking = asyncio.create_task(day_of(openais(server, client)))
        await asyncio.to_thread(server.wait_for, lambda server: len(server.descriptions) == 1)
        await clock.advance(DESCRIPTION_S)
        assert await ended(asking) is None


async def test_servers_of_others_are_not_asked(client: Any) -> None:
    with ChatServer() as server:
        table = ModelTable(base_url=server.base_url, client=client)
        assert await day_of(resolve("gpt-5-mini", table, {}, where="x.toml:1")) is None
    assert server.descriptions == []


def test_openais_own_address_in_a_config_is_openais() -> None:
    def is_openais(base_url: str) -> bool:
        return resolve("gpt-5-mini", ModelTable(base_url=base_url), {}, where="x.toml:1").is_openais

    assert [is_openais(url) for url in ("https://eu.api.openai.com/v1", "https://api.x.ai/v1")] == [True, False]
