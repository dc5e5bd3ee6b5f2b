"""Requests to judges. Within an eval its host sends them; elsewhere, as in a unit test, they are sent from here."""

from __future__ import annotations

import asyncio
import atexit
import os
import random
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Protocol

from pytest_osmosis.models import create, retry
from pytest_osmosis.models.base import ChatReply, ChatRequest, Model
from pytest_osmosis.models.own_loop import OWN_LOOP
from pytest_osmosis.models.targets import ModelTarget

KEY = "the key of the judge"
"""The name under which a key that code passes is given to a client."""
MAX_IN_FLIGHT = 64
ALONE_RETRIES = 2
CLOSE_S = 1.0


@dataclass(frozen=True, slots=True)
class JudgeModel:
    """The model of a judge: `name` as typed, `base_url` unless the name implies it, and how it is reached.

    `api_key` is the key itself if code passes one, None if the environment holds it or none is needed.
    """

    name: str
    base_url: str | None
    target: ModelTarget
    api_key: str | None = None

    @property
    def identity(self) -> tuple[str | None, ...]:
        """All that tells two clients apart."""
        target = self.target
        return self.name, target.base_url, target.client, target.model, target.api_key_env, self.api_key

    def client(self, environ: Mapping[str, str]) -> Model:
        """Return a client. Raises `ConfigError` if its key or its library is missing."""
        if self.api_key is None:
            return create(self.target, environ, MAX_IN_FLIGHT)
        return create(replace(self.target, api_key_env=KEY), {**environ, KEY: self.api_key}, MAX_IN_FLIGHT)


class Requests(Protocol):
    """Sends requests to judges."""

    @property
    def needs_keys(self) -> bool:
        """False if no judge is asked, because all answers are recorded."""
        ...

    async def send(self, judge: JudgeModel, request: ChatRequest) -> ChatReply:
        """Return the reply, after retries. May be awaited in any event loop. Raises `ModelError`."""
        ...


REQUESTS: ContextVar[Requests | None] = ContextVar("osmosis judge requests", default=None)
"""The sender of judge requests for the current scoring."""


class JudgeClients:
    """The clients of one event loop, each made when it is first needed.

    A judge that denies every request, such as for a wrong key, gets no further one.
    """

    def __init__(self) -> None:
        self._clients: dict[tuple[str | None, ...], retry.DeniableModel] = {}
        self._making = asyncio.Lock()

    @property
    def any_made(self) -> bool:
        return bool(self._clients)

    async def client(
        self, judge: JudgeModel, paused: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> Model:
        """Return the client of a judge. Raises `ModelError` if it denies every request.

        The first one may import a large library, which happens in a thread, within `paused`.
        """
        identity = judge.identity
        if identity not in self._clients:
            async with self._making:
                if identity not in self._clients:
                    with paused():
                        client = await asyncio.to_thread(judge.client, dict(os.environ))
                        self._clients[identity] = retry.DeniableModel(client)
        self._clients[identity].raise_if_denied()
        return self._clients[identity]

    async def close(self) -> None:
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.close()


class RequestsOutsideOfEvals:
    """Sends requests from the process that asks, with a few retries. Nobody counts them."""

    needs_keys = True

    def __init__(self) -> None:
        self._clients = JudgeClients()
        self._pid = os.getpid()
        atexit.register(self._close)

    async def send(self, judge: JudgeModel, request: ChatRequest) -> ChatReply:
        if not OWN_LOOP.is_here:
            return await OWN_LOOP.wait_for(self.send(judge, request))
        if self._pid != os.getpid():  # connections of the process that forked this one
            self._clients, self._pid = JudgeClients(), os.getpid()
        answered = await retry.chat(
            await self._clients.client(judge),
            request,
            timeout_s=judge.target.timeout_s,
            policy=retry.RetryPolicy(max_retries=ALONE_RETRIES),
            remaining_s=lambda: None,
            waiting=lambda delay_s: nullcontext(),
            rng=random.Random(),
        )
        return answered.reply

    def _close(self) -> None:
        if self._clients.any_made and self._pid == os.getpid():
            with suppress(Exception):
                OWN_LOOP.run(asyncio.wait_for(self._clients.close(), CLOSE_S))


OUTSIDE_OF_EVALS = RequestsOutsideOfEvals()


def current_requests() -> Requests:
    """Return who sends the requests of the code that calls this."""
    return REQUESTS.get() or OUTSIDE_OF_EVALS
