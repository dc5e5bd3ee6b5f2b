"""The rollouts that may send requests to the endpoint, each under a URL and with a key of its own."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest

PREFIX = "/rollouts/"

Send = Callable[[ChatRequest], Awaitable[ChatReply]]
"""Sends a request as `ctx.chat` does. Raises `ModelError` if there is no answer, `OverError` if the rollout is over."""


class OverError(RuntimeError):
    """A request was sent for a rollout that is over."""


class Address(NamedTuple):
    """The URL of the endpoint for one rollout, and its key."""

    base_url: str
    api_key: str


class EndpointRollout:
    """One rollout, as the endpoint sees it. `model` is the name of the model that answers; `run` names the run.

    `on_failure` receives the error of each request that failed, and None for each that was answered.
    """

    def __init__(self, run: str, model: str, send: Send, on_failure: Callable[[ModelError | None], None]) -> None:
        self.model = model
        self.name = f"{run}-{secrets.token_hex(8)}"
        self.key = secrets.token_urlsafe(24)
        self.send = send
        self.on_failure = on_failure


class OpenRollouts:
    """The rollouts in flight that have asked for their address."""

    def __init__(self) -> None:
        self._by_name: dict[str, EndpointRollout] = {}

    def add(self, rollout: EndpointRollout) -> None:
        self._by_name[rollout.name] = rollout

    def remove(self, rollout: EndpointRollout) -> None:
        """Refuse further requests of a rollout."""
        self._by_name.pop(rollout.name, None)

    def named(self, name: str) -> EndpointRollout | None:
        """Return the rollout in flight of that name, None if it is over or never was."""
        return self._by_name.get(name)


def is_key(sent: str, key: str) -> bool:
    """Return True if a client sent the right key. The time that this takes tells nothing about the key."""
    return hmac.compare_digest(sent.encode("utf-8", "surrogateescape"), key.encode())
