"""The connections of a client to its server: aiohttp, with the environment's certificates and proxies.

Certificates come from SSL_CERT_FILE and SSL_CERT_DIR, proxies from HTTP_PROXY and its like (`failures`).
aiohttp's own `trust_env` is off, because it would send passwords from ~/.netrc. Redirects are not followed, and cookies
are not kept. `read_body` bounds the bodies of answers, whichever library reads them.
"""

from __future__ import annotations

import os
import re
import select
from collections.abc import AsyncIterable, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from ssl import SSLContext
from typing import Any, TypeVar
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection

from pytest_osmosis import __version__
from pytest_osmosis.models import completions
from pytest_osmosis.models.base import ChatReply, ChatRequest, HttpApi
from pytest_osmosis.models.failures import Failures, proxy_of
from pytest_osmosis.models.json_bodies import decoded, shown
from pytest_osmosis.models.targets import ModelTarget

MB = 2**20
LARGE_HEADERS: Mapping[str, Any] = {"max_field_size": 2**17, "max_headers": 512}
"""The bounds on one header of an answer, and on their number: far above those of servers that add traces to theirs."""
CODINGS = ("gzip", "deflate")
"""The codings that are asked for. Old releases of httpx unpack whole what arrived at once: 64 kB are at most 64 MB."""
ACCEPTED = {"Accept-Encoding": ", ".join(CODINGS)}
CONNECT_TIMEOUT_S = 10.0
TIMEOUT = aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S)
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class SilentConnector(aiohttp.TCPConnector):
    """A pool that gives out no connection on which the server has said something since its last answer.

    A server that answers a request twice would otherwise answer the next one, of another run, with that.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(self, *args: Any, **options: Any) -> Connection:
        """Return a connection to send a request on."""
        while True:
            connection = await super().connect(*args, **options)
            protocol = connection.protocol
            if protocol is not None and protocol not in self._used:
                self._used.add(protocol)
            elif protocol is not None and _has_spoken(protocol):
                connection.close()
                continue
            return connection


def _has_spoken(protocol: ResponseHandler) -> bool:
    """Return True if the server sent something that was not asked for, or closed the connection."""
    if protocol.should_close or protocol.transport is None:
        return True
    arrived = select.poll()  # what the event loop has not read yet, because user code held it
    arrived.register(protocol.transport.get_extra_info("socket"), select.POLLIN)
    return bool(arrived.poll(0))


async def read_body(pieces: AsyncIterable[bytes], max_bytes: int) -> bytes:
    """Return a body from its unpacked pieces, each of which is small. Reads no further once it has over `max_bytes`."""
    body = bytearray()
    async for piece in pieces:
        body += piece
        if len(body) > max_bytes:
            break
    return bytes(body)


def answer_of(
    status: int, headers: Mapping[str, str], body: bytes, max_bytes: int, failures: Failures
) -> tuple[int, str]:
    """Return status and text of a 2xx answer with a whole body. Raises `ModelError` for everything else."""
    if status // 100 != 2:
        raise failures.of_status(status, headers, shown(body), now=datetime.now(UTC))
    if len(body) > max_bytes:
        raise failures.too_large(status, f"a body of more than {max_bytes / MB:g} MB")
    return status, decoded(status, body, failures)


def coding_of(headers: Mapping[str, str]) -> str:
    """Return how a body is packed, "" if it is not."""
    coding = headers.get("Content-Encoding", "").lower()
    return "" if coding == "identity" else coding


def sendable_headers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return headers without blanks around their values, which some clients would send.

    Raises `UnicodeError` for a value that no header can have; some clients would say that the connection broke.

    >>> sendable_headers({"X-Team": " evals\\t"})
    {'X-Team': 'evals'}
    """
    sendable = dict(headers)
    for name, value in headers.items():
        if isinstance(value, str):
            value.encode("ascii")
            if _CONTROL.search(value):
                raise UnicodeError(f"the value of the header {name} has a control character")
            sendable[name] = value.strip()
    return sendable


def certificates() -> SSLContext:
    """Return the certificates that the openai client trusts. Loading takes time, so only TLS connections do it, once.

    With other variables of the environment they are loaded anew.
    """
    return _certificates(*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR", "SSLKEYLOGFILE")))


@cache
def _certificates(*variables: str | None) -> SSLContext:
    name = "httpx2" if find_spec("httpx2") else "httpx"  # on which it is built before release 3
    context: SSLContext = import_module(name).create_ssl_context()
    return context


Value = TypeVar("Value")
Other = TypeVar("Other")


def merged(ours: Mapping[str, Value], others: Mapping[str, Other]) -> dict[str, Value | Other]:
    """Merge headers. Those in `others` replace ours with the same name in any case, and get our spelling.

    >>> merged({"Content-Type": "a", "X": "b"}, {"content-type": "c", "Y": "d"})
    {'Content-Type': 'c', 'X': 'b', 'Y': 'd'}
    """
    spelling = {name.lower(): name for name in ours}
    return {**ours, **{spelling.get(name.lower(), name): value for name, value in others.items()}}


class HttpModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent. Subclasses set `_headers`."""

    _headers: Mapping[str, Any]

    def __init__(self, target: ModelTarget, api_key: str | None, api: HttpApi, max_in_flight: int) -> None:
        assert target.base_url is not None
        self.target = target
        self._api = api
        root = target.base_url.rstrip("/")
        # Anthropic's client adds /v1 itself, so that one base_url suits every client.
        self._root = root.removesuffix("/v1") if api.PATH.startswith("/v1/") else root
        self._url = f"{self._root}{api.PATH}"
        self._failures = Failures(target.base_url, self._url, api_key, target.address_key)
        proxy = proxy_of(target.base_url)
        self._proxy = None if proxy is None else proxy.url
        self._max_in_flight = max_in_flight
        self._max_bytes = target.max_response_mb * MB

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that the API cannot represent."""
        body = self._api.write_request(request, self.target)
        status, text = await self._send(body, self._headers_of(request))
        return self._api.read_reply(status, text, self.target, self._failures)

    def _headers_of(self, request: ChatRequest) -> Mapping[str, Any]:
        return merged(self._headers, request.headers) if request.headers else self._headers

    async def _send(self, body: bytes, headers: Mapping[str, Any]) -> tuple[int, str]:
        """Return status and body of a 2xx answer. Raises `ModelError` for everything else."""
        raise NotImplementedError


class LightModel(HttpModel):
    """A model that is asked through aiohttp, on at most `max_in_flight` connections."""

    def __init__(
        self, target: ModelTarget, api_key: str | None, *, max_in_flight: int, api: HttpApi = completions
    ) -> None:
        super().__init__(target, api_key, api, max_in_flight)
        self._certificates = certificates() if urlsplit(self._root).scheme == "https" or self._proxy else True
        self._session: aiohttp.ClientSession | None = None
        ours = {"Content-Type": "application/json", "User-Agent": f"pytest-osmosis/{__version__}"}
        if api_key is not None:
            ours["Authorization"] = f"Bearer {api_key}"
        self._headers = merged(ours, target.headers)
        self._sendable: dict[str, Any] = {}

    async def _send(self, body: bytes, headers: Mapping[str, Any], url: str | None = None) -> tuple[int, str]:
        try:
            async with self._opened().post(
                url or self._url,
                data=body,
                headers=self._checked(headers),
                timeout=TIMEOUT,
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                content = await read_body(response.content.iter_any(), self._max_bytes)
        except Exception as error:
            raise self._failures.of_exception(error) from None
        return answer_of(response.status, response.headers, content, self._max_bytes, self._failures)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    def _checked(self, headers: Mapping[str, Any]) -> dict[str, Any]:
        if headers is not self._headers:
            return sendable_headers(headers)
        self._sendable = self._sendable or sendable_headers(headers)
        return self._sendable

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session. The first request opens it, because that needs a running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=SilentConnector(limit=self._max_in_flight, ssl=self._certificates),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=ACCEPTED,
                **LARGE_HEADERS,
            )
        return self._session
