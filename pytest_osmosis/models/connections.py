"""The connections of a client to its server: aiohttp, with the environment's certificates and proxies.

Certificates come from SSL_CERT_FILE and SSL_CERT_DIR, proxies from HTTP_PROXY and its like (`proxies`).
aiohttp's own `trust_env` is off, because it would send passwords from ~/.netrc. Redirects are not followed, and cookies
are not kept. Answers are bounded; see `answer_bodies`.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from ssl import CERT_NONE, PROTOCOL_TLS_CLIENT, SSLContext
from typing import Any
from urllib.parse import urlsplit
from weakref import WeakSet

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.tracing import Trace

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.answer_bodies import MB, asking_for_known_codings, bounded
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.json_bodies import decoded, shown
from pytest_osmosis.models.proxies import proxy_of
from pytest_osmosis.models.targets import ModelTarget

MAX_HEADER_BYTES, MAX_HEADERS = 2**17, 512
"""The bounds on one header of an answer, and on their number: far above those of servers that add traces to theirs."""
CONNECT_TIMEOUT_S = 10.0
HANDSHAKE_S = 2.0
HUNG_UP = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError)
"""Many servers end a connection without a word if they get a request without TLS."""


class Connections:
    """At most `max_in_flight` connections to the server of `target`, for one event loop."""

    def __init__(self, target: ModelTarget, failures: Failures, max_in_flight: int) -> None:
        assert target.base_url is not None
        self._failures = failures
        self._base_url = target.base_url
        proxy = proxy_of(target.base_url)
        self._proxy = None if proxy is None else proxy.url
        self._may_want_tls = urlsplit(target.base_url).scheme == "http" and self._proxy is None
        self._max_in_flight = max_in_flight
        self._max_bytes = target.max_response_mb * MB
        self._certificates = certificates() if urlsplit(target.base_url).scheme == "https" or self._proxy else True
        self._session: aiohttp.ClientSession | None = None

    async def request(self, method: str, url: str, headers: Mapping[str, str], body: bytes) -> tuple[int, str]:
        """Return status and body of a 2xx answer. Raises `ModelError` for everything else."""
        try:
            check_ascii(headers)
            async with self._opened().request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S),
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                status, content = response.status, await response.read()
        except Exception as error:
            raise await self._failure(error) from None
        self._may_want_tls = False
        if status // 100 != 2:
            raise self._failures.of_status(status, response.headers, shown(content), now=datetime.now(UTC))
        return status, decoded(status, content, self._failures)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _failure(self, error: Exception) -> ModelError:
        """Return the error for an exception. If a server hangs up before it ever answered, see if it wants TLS."""
        hung_up = isinstance(error, HUNG_UP) and not isinstance(error, aiohttp.ClientConnectorError)
        if self._may_want_tls and hung_up:
            self._may_want_tls = False
            if await speaks_tls(self._base_url):
                return self._failures.tls()
        return self._failures.of_exception(error)

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session. The first request opens it, because that needs a running event loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=SilentConnector(limit=self._max_in_flight, ssl=self._certificates),
                cookie_jar=aiohttp.DummyCookieJar(),
                **bounds(self._max_bytes),
            )
        return self._session


def bounds(max_bytes: int) -> dict[str, Any]:
    """Return the options of a session that bound its answers."""
    return {
        "response_class": bounded(max_bytes),
        "middlewares": (asking_for_known_codings,),
        "auto_decompress": False,
        "max_field_size": MAX_HEADER_BYTES,
        "max_headers": MAX_HEADERS,
    }


class SilentConnector(aiohttp.TCPConnector):
    """A pool that gives out no connection on which the server has said something since its last answer.

    A server that answers a request twice would otherwise answer the next one, of another run, with that.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._used: WeakSet[ResponseHandler] = WeakSet()

    async def connect(
        self,
        req: aiohttp.ClientRequest,
        traces: list[Trace],
        timeout: aiohttp.ClientTimeout,  # noqa: ASYNC109  # aiohttp's own signature
    ) -> Connection:
        """Return a connection to send `req` on."""
        while True:
            connection = await super().connect(req, traces, timeout)
            protocol = connection.protocol
            if protocol is None or protocol not in self._used:
                if protocol is not None:
                    self._used.add(protocol)
                return connection
            if not _has_spoken(protocol):
                return connection
            connection.close()


def _has_spoken(protocol: ResponseHandler) -> bool:
    """Return True if the server sent something that was not asked for, or closed the connection."""
    if protocol.should_close or protocol.transport is None:
        return True
    arrived = select.poll()  # what the event loop has not read yet, because user code held it
    arrived.register(protocol.transport.get_extra_info("socket"), select.POLLIN)
    return bool(arrived.poll(0))


async def speaks_tls(url: str) -> bool:
    """Return True if the server at an address answers with TLS. Nothing is sent but the handshake."""
    parts = urlsplit(url)
    anybody = SSLContext(PROTOCOL_TLS_CLIENT)
    anybody.check_hostname, anybody.verify_mode = False, CERT_NONE
    try:
        async with asyncio.timeout(HANDSHAKE_S):
            _, writer = await asyncio.open_connection(parts.hostname, parts.port or 80, ssl=anybody)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def check_ascii(headers: Mapping[str, Any]) -> None:
    """Raise `UnicodeError` for a header that is not ASCII; some clients would send other bytes for it."""
    for value in headers.values():
        if isinstance(value, str):
            value.encode("ascii")


def certificates() -> SSLContext:
    """Return the certificates that the openai client trusts. Loading takes time, so only TLS connections do it."""
    name = "httpx2" if find_spec("httpx2") else "httpx"  # on which it is built before release 3
    context: SSLContext = import_module(name).create_ssl_context()
    return context
