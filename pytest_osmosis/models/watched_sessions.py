"""Sessions of aiohttp for a library that opens its own: bounded as ours are, and watched.

A library reports errors of the server, of the connection and of its own alike, and changes bodies. A `WatchedExchange`
keeps what really came. Redirects end here, because the library would follow them to any host with its keys.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from pytest_osmosis.models.answer_bodies import WholeResponse, asking_for_known_codings
from pytest_osmosis.models.connections import bounds


@dataclass(slots=True)
class WatchedExchange:
    """The last answer to a request, with its unpacked body, or the error in place of an answer."""

    url: str = ""
    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: Exception | None = None

    @property
    def is_chat_completion(self) -> bool:
        """True for an answer in the shape of chat completions."""
        return self.status is not None and self.status // 100 == 2 and b'"choices"' in self.body


EXCHANGE: ContextVar[WatchedExchange] = ContextVar("EXCHANGE")
"""The exchange of the request that the current task sends."""


class Redirected(aiohttp.ClientError):
    """The server answered with a redirect."""


def watched_session(max_bytes: int) -> type[aiohttp.ClientSession]:
    """Return a class of sessions whose answers are bounded, and put into `EXCHANGE`."""

    def __init__(self: aiohttp.ClientSession, **options: Any) -> None:
        ours = {**bounds(max_bytes), "middlewares": (_watched,)}
        aiohttp.ClientSession.__init__(self, **{**options, **ours})

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # aiohttp prefers options, which the library would pass
        return type("WatchedSession", (aiohttp.ClientSession,), {"__init__": __init__})


async def _watched(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request, and note what comes of it. Raises `Redirected`."""
    exchange = EXCHANGE.get(None) or WatchedExchange()
    exchange.url, exchange.status, exchange.error = str(request.url), None, None
    try:
        response = await asking_for_known_codings(request, send)
    except Exception as error:
        exchange.error = error
        raise
    exchange.status, exchange.headers = response.status, response.headers
    if isinstance(response, WholeResponse):
        exchange.body = response.body
    if response.status // 100 == 3:
        response.close()
        raise Redirected
    return response
