"""Sessions of aiohttp for a library that opens its own: bounded as ours are, and watched.

A library reports errors of the server, of the connection and of its own alike, and changes bodies. A `WatchedExchange`
keeps what really came. Redirects end here, because the library would follow them to any host with its keys.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import ContentEncodingError

from pytest_osmosis.models.connections import LARGE_HEADERS, MB, coding_of, read_body


@dataclass(slots=True)
class WatchedExchange:
    """The last answer to a request, with its body up to about `max_bytes`, or the error in place of an answer."""

    max_bytes: int = 64 * MB
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


class NotReadOn(aiohttp.ClientError):
    """The server answered with a redirect, or with a body beyond the bound, which the library is not to see."""


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # aiohttp prefers options, which the library would pass

    class WatchedSession(aiohttp.ClientSession):
        """A session whose answers are bounded, and put into `EXCHANGE`."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, **LARGE_HEADERS, "middlewares": (_watched,)})


async def _watched(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request, and note what comes of it. Raises `NotReadOn`.

    No packed body is asked for, because the library would unpack it without a bound.
    """
    exchange = EXCHANGE.get(None) or WatchedExchange()
    exchange.url, exchange.status, exchange.error = str(request.url), None, None
    request.headers["Accept-Encoding"] = "identity"
    try:
        async with await send(request) as response:
            if coding := coding_of(response.headers):
                raise ContentEncodingError(f'Content-Encoding "{coding}" was not asked for')
            body = await read_body(response.content.iter_any(), exchange.max_bytes)
    except Exception as error:
        exchange.error = error
        raise
    exchange.status, exchange.headers, exchange.body = response.status, response.headers, body
    if response.status // 100 == 3 or len(body) > exchange.max_bytes:
        raise NotReadOn
    loop = asyncio.get_running_loop()
    response.content = aiohttp.StreamReader(BaseProtocol(loop), limit=2**62, loop=loop)
    response.content.feed_data(body)
    response.content.feed_eof()
    return response
