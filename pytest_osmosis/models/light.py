"""Chat completions over bare aiohttp: the behaviour of the openai client, for about a quarter of its CPU.

Certificates and proxies come from the environment as they do for the openai client (SSL_CERT_FILE, SSL_CERT_DIR,
HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, NO_PROXY). aiohttp's own `trust_env` is off, because it would send
passwords from ~/.netrc.
"""

from __future__ import annotations

from datetime import UTC, datetime
from ssl import SSLContext
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from pytest_osmosis import __version__
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply, write_request
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.official_clients import CONNECT_TIMEOUT_S, check_ascii, merged
from pytest_osmosis.models.targets import ModelTarget


class LightModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        assert target.base_url is not None
        self._target = target
        self._url = f"{target.base_url.rstrip('/')}/chat/completions"
        self._failures = Failures(target.base_url, self._url, api_key)
        self._proxy = proxy_of(target.base_url)
        self._max_in_flight = max_in_flight
        self._certificates = certificates() if urlsplit(target.base_url).scheme == "https" or self._proxy else True
        self._session: aiohttp.ClientSession | None = None
        ours = {"Content-Type": "application/json", "User-Agent": f"pytest-osmosis/{__version__}"}
        if api_key is not None:
            ours["Authorization"] = f"Bearer {api_key}"
        self._headers = merged(ours, target.headers)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        status, content = await self._post(write_request(request, self._target))
        return read_reply(status, content, self._failures)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def _post(self, body: bytes) -> tuple[int, bytes]:
        """Return status and body of a 2xx answer. Raises `ModelError` for everything else."""
        try:
            check_ascii(self._headers)
            async with self._opened().post(
                self._url,
                data=body,
                headers=self._headers,
                timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_TIMEOUT_S),
                proxy=self._proxy,
                allow_redirects=False,
            ) as response:
                content = await response.read()
        except Exception as error:
            raise self._failures.of_exception(error) from None
        if response.status // 100 != 2:
            text = content.decode("utf-8", errors="replace")
            raise self._failures.of_status(response.status, response.headers, text, now=datetime.now(UTC))
        return response.status, content

    def _opened(self) -> aiohttp.ClientSession:
        """Return the session. The first request opens it, because that needs a running event loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(limit=self._max_in_flight, ssl=self._certificates)
            self._session = aiohttp.ClientSession(connector=connector, cookie_jar=aiohttp.DummyCookieJar())
        return self._session


def certificates() -> SSLContext:
    """Return the certificates that the openai client trusts. Loading takes time, so only TLS connections do it."""
    import httpx2

    return httpx2.create_ssl_context()


def proxy_of(url: str) -> str | None:
    """Return the proxy that the environment sets for this address, or None."""
    parts = urlsplit(url)
    proxies = getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.netloc):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"
