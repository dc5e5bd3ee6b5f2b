"""The rollouts that may send requests to the endpoint, each under a URL and with a key of its own."""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from pytest_osmosis.models.base import ChatReply, ChatRequest

PREFIX = "/rollouts/"

Send = Callable[[ChatRequest], Awaitable[ChatReply]]
"""Sends a request as `ctx.chat` does.

Raises `ModelError` if there is no answer, `BoundError` if a bound of the rollout is met, `OverError` if it is over.
"""


class OverError(RuntimeError):
    """A request was sent for a rollout that is over."""


class Address(NamedTuple):
    """The URL of the endpoint for one rollout, and its key."""

    base_url: str
    api_key: str


class EndpointRollout:
    """One rollout, as the endpoint sees it. `model` is the name of the model that answers; `run` names the run."""

    def __init__(self, run: str, model: str, send: Send) -> None:
        self.model = model
        self.name = f"{run}-{secrets.token_hex(8)}"
        self.key = secrets.token_urlsafe(24)
        self._send = send
        self._over = False
        self._requests: set[asyncio.Task[Any]] = set()

    async def send(self, request: ChatRequest) -> ChatReply:
        """Send a request to the model. Raises `OverError` if the rollout is over, or ends meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        if self._over:
            raise OverError
        self._requests.add(task)
        try:
            return await self._send(request)
        except asyncio.CancelledError:
            if self._over and task.uncancel() == 0:
                raise OverError from None
            raise
        finally:
            self._requests.discard(task)

    def end(self) -> None:
        """Refuse further requests, and end those that wait for an answer."""
        self._over = True
        for task in self._requests:
            task.get_loop().call_soon_threadsafe(task.cancel)


class OpenRollouts:
    """The rollouts in flight that have asked for their address."""

    def __init__(self) -> None:
        self._by_name: dict[str, EndpointRollout] = {}

    def add(self, rollout: EndpointRollout) -> None:
        self._by_name[rollout.name] = rollout

    def end(self, rollout: EndpointRollout) -> None:
        rollout.end()
        self._by_name.pop(rollout.name, None)

    def named(self, name: str) -> EndpointRollout | None:
        """Return the rollout in flight of that name, None if it is over or never was."""
        return self._by_name.get(name)


def is_key(sent: str, key: str) -> bool:
    """Return True if a client sent the right key. The time that this takes tells nothing about the key."""
    return hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), key.encode())
