"""The model requests that the endpoint's standby sends while code holds the host's event loop.

Slots and the limit of requests in flight belong to that loop and are left alone: a rollout that holds it has its slot.
Permits, retries, deadlines and totals apply.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from pytest_osmosis.errors import ModelError
from pytest_osmosis.host.clients import Clients, DeniableModel, clients_of
from pytest_osmosis.host.permits import Permit, PermitClient, size_of
from pytest_osmosis.host.protocol import Emit, Key, Setup, Size
from pytest_osmosis.models import retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model, Usage
from pytest_osmosis.record.run_id import ModelTag


class StandbyGateway:
    """Sends requests in the standby's event loop, with clients of its own.

    `models` are those of the host's loop, which learn of a denial. `emit` may be called from any thread.
    """

    def __init__(
        self, setup: Setup, environ: Mapping[str, str], models: Mapping[str, DeniableModel], emit: Emit
    ) -> None:
        self._setup = setup
        self._environ = environ
        self._models = models
        self._permits = PermitClient(emit) if setup.permits else None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._clients: Clients = {}
        self._policy = retry.RetryPolicy(max_retries=setup.target["max_retries"])
        self._jitter = random.Random()

    def grant(self, ids: Sequence[int]) -> None:
        """Grant the permits among `ids` that are the standby's. May be called from any thread."""
        if self._permits is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._permits.grant, ids)

    async def send(
        self,
        key: Key,
        request: ChatRequest,
        remaining_s: Callable[[], float | None],
        host_loop: asyncio.AbstractEventLoop,
        on_retry: Callable[[], None],
    ) -> ChatReply:
        """Send `request` until it is answered or no retry can help. `on_retry` is called for each retry."""
        self._loop = asyncio.get_running_loop()
        permitted = _PermittedRequest(self._permits, key, size_of(request))

        @asynccontextmanager
        async def waiting(_delay_s: float) -> AsyncIterator[None]:
            permitted.end()
            yield
            await permitted.begin()
            on_retry()

        async def moved() -> None:
            permitted.end()
            await permitted.begin()
            on_retry()

        await permitted.begin()
        try:
            answered = await retry.chat(
                self._model(key.run.model, host_loop),
                request,
                timeout_s=self._setup.target["timeout_s"],
                policy=self._policy,
                remaining_s=remaining_s,
                waiting=waiting,
                rng=self._jitter,
                moved=moved,
            )
            permitted.end(answered.reply.usage)
        finally:
            permitted.end()
        return answered.reply

    async def close(self) -> None:
        """Close the clients, in their own loop."""
        if self._loop is not None:
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._close(), self._loop))

    async def _close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()

    def _model(self, tag: ModelTag, host_loop: asyncio.AbstractEventLoop) -> Model:
        self._clients = self._clients or clients_of(self._setup, self._environ)
        return _StandbyModel(self._clients[tag], self._models[tag], host_loop)


class _PermittedRequest:
    """One request, which has a permit each time that it is sent, if permits are needed."""

    def __init__(self, permits: PermitClient | None, key: Key, size: Size) -> None:
        self._permits = permits
        self._key = key
        self._size = size
        self._permit: Permit | None = None

    async def begin(self) -> None:
        if self._permits is not None:
            self._permit = await self._permits.get(self._key, self._size)

    def end(self, usage: Usage | None = None) -> None:
        if self._permit is not None:
            self._permit.answered(usage)


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
