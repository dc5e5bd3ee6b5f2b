"""The model requests that the endpoint's standby sends, in `OWN_LOOP`, while code holds the host's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.clients import Clients, DeniableModel, clients_of
from pytest_osmosis.host.deadline import Deadline
from pytest_osmosis.host.permits import PermitClient
from pytest_osmosis.host.protocol import Emit, Key, Setup
from pytest_osmosis.host.sender import Sender
from pytest_osmosis.host.slots import ResizableSemaphore, StandbySlot
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.record.run_id import ModelTag


class StandbyGateway:
    """Sends the requests that come to the endpoint's standby, with clients of its own.

    `models` are those of the host's loop, which learn of a denial. `emit` may be called from any thread.
    """

    def __init__(
        self, setup: Setup, environ: Mapping[str, str], models: Mapping[str, DeniableModel], emit: Emit
    ) -> None:
        self._setup = setup
        self._environ = environ
        self._models = models
        permits = PermitClient(emit) if setup.permits else None
        self._sender = Sender(permits, setup.target["max_retries"], asyncio.timeout)
        self._requests = ResizableSemaphore(setup.limit)
        self._clients: Clients = {}

    async def send(self, key: Key, request: ChatRequest, deadline: Deadline, on_retry: Callable[[], None]) -> ChatReply:
        """Send a request of the rollout with this deadline."""
        model, timeout_s = self._model(key.run.model, deadline.loop), self._setup.target["timeout_s"]
        async with self._sender.begun(StandbySlot(self._requests, deadline), key, request, is_sent=True) as in_flight:
            return await self._sender.send(model, request, in_flight, key, timeout_s, deadline, on_retry)

    async def close(self) -> None:
        """Close the clients, in their own loop."""
        if self._clients:
            await OWN_LOOP.wait_for(self._close())

    async def _close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _model(self, tag: ModelTag, host_loop: asyncio.AbstractEventLoop) -> Model:
        self._clients = self._clients or clients_of(self._setup, self._environ)
        return _StandbyModel(self._clients[tag], self._models[tag], host_loop)


class _StandbyModel:
    """A client of the standby, which sends nothing once the model has denied all requests, here or there."""

    def __init__(self, own: Model, hosts: DeniableModel, host_loop: asyncio.AbstractEventLoop) -> None:
        self._own = own
        self._hosts = hosts
        self._host_loop = host_loop

    async def chat(self, request: ChatRequest) -> ChatReply:
        self._hosts.raise_if_denied()
        try:
            return await self._own.chat(request)
        except ModelError as error:
            if error.systemic == "always":
                self._host_loop.call_soon_threadsafe(self._hosts.deny, str(error))
            raise

    async def close(self) -> None:
        await self._own.close()
