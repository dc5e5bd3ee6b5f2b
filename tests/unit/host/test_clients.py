"""The clients of a host, of which one may learn that its model denies every request, and its ends of the pipes."""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, cast
from unittest.mock import Mock

import pytest

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host import main
from pytest_osmosis.host.chat import ModelGateway
from pytest_osmosis.host.core import HostCore
from pytest_osmosis.host.deadline import LoopMonitor
from pytest_osmosis.host.host_endpoint import HostEndpoint
from pytest_osmosis.host.loading import UserCode
from pytest_osmosis.host.main import RequestReader
from pytest_osmosis.host.protocol import HostCode, Request, Setup
from pytest_osmosis.host.slots import HostLimits
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.retry import DeniableModel
from tests.unit.models.test_retry_policy import Scripted

REQUEST = ChatRequest([{"role": "user", "content": "?"}])


def denying() -> Scripted:
    """A client whose key is wrong."""
    return Scripted(ModelError("401", systemic="always"))


async def denied(model: DeniableModel) -> None:
    with pytest.raises(ModelError, match="401"):
        await model.chat(REQUEST)


async def test_a_denial_in_one_loop_holds_in_both_and_in_its_own_one_at_once() -> None:
    """The host's loop hears of it once the code that holds it ends."""
    heard: list[str] = []
    own, hosts = denying(), denying()
    host = DeniableModel(hosts, heard.append)
    loop = asyncio.get_running_loop()
    standby = DeniableModel(own, lambda error: loop.call_soon_threadsafe(host.deny, error), host)
    await denied(standby)
    await denied(standby)
    assert (len(own.requests), heard) == (1, [])
    await asyncio.sleep(0)
    await denied(host)
    assert (len(hosts.requests), heard) == (0, ["401"])


async def test_the_standby_sends_nothing_once_the_host_has_been_denied() -> None:
    own = denying()
    host = DeniableModel(denying(), lambda error: None)
    await denied(host)
    await denied(DeniableModel(own, other=host))
    assert len(own.requests) == 0


async def test_what_an_environment_holds_is_released_though_a_client_cannot_be_closed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    released = []

    class Environment:
        async def close(self) -> None:
            released.append(self)

    async def breaks(self: ModelGateway) -> None:
        raise OSError("its connections are those of another loop")

    monkeypatch.setattr(ModelGateway, "close", breaks)
    target = {"model": "m", "provider": "p", "client": "light", "base_url": None, "max_retries": 0}
    setup = Setup(HostCode("roll", ".", (), target))
    code = UserCode(None, (), None, {}, None, environment=cast(Any, Environment()))
    endpoint, limits = HostEndpoint(setup.code, {}), HostLimits(1, lambda: None)
    core = HostCore(setup, code, {}, endpoint, limits, LoopMonitor(lambda key, stack: None), Mock())
    with pytest.raises(OSError, match="another loop"):
        await core.close()
    assert released


DEADLINE_S = 60.0


def test_a_host_whose_reader_breaks_ends_as_it_would_hear_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(requests: list[Request]) -> None:
        if requests:
            raise TypeError("user code replaced a builtin")

    ended = threading.Event()
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    monkeypatch.setattr(main, "end_process_group", ended.set)
    read, write = os.pipe()
    with os.fdopen(read, "rb") as pipe, os.fdopen(write, "wb") as engine:
        reader = RequestReader(pipe)
        reader.start()
        (thread,) = (each for each in threading.enumerate() if each.name == "osmosis-reader")
        reader.deliver_to(broken)
        engine.write(b'{"op": "close"}\n')
        engine.flush()

        thread.join(DEADLINE_S)
    assert ended.is_set()
