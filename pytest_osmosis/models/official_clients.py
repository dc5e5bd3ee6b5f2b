"""The official openai and anthropic clients, which are generated from one template and used here in one way.

A client contributes headers, authentication and its transport: that of httpx. Its retries are off (`retry` has them).
Its parsing is not used, because it reads bodies without a bound, takes an HTML page for an answer, and raises bare JSON
errors.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, TypeVar

from pytest_osmosis.models.connections import (
    ACCEPTED,
    CODINGS,
    CONNECT_TIMEOUT_S,
    MB,
    answer_of,
    coding_of,
    read_body,
    sendable_headers,
)
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.headers import headers_in
from pytest_osmosis.models.providers import CUSTOM_HEADERS
from pytest_osmosis.models.proxies import proxy_of
from pytest_osmosis.models.targets import ModelTarget

ANSWER = "pytest_osmosis.answer"

_BODY: ContextVar[bytes] = ContextVar("pytest_osmosis.body")
"""The body of the request in flight. It bypasses the client, which takes bytes only in its newer releases."""

Value = TypeVar("Value")
Other = TypeVar("Other")


class Transport:
    """The transport below an official client, and the requests that go through it.

    `kind` is the client's class of HTTP clients. It comes from httpx or httpx2, depending on the client's version.
    """

    def __init__(self, kind: type, target: ModelTarget, failures: Failures, max_in_flight: int) -> None:
        module = next(base.__module__ for base in kind.__mro__ if base.__module__ in ("httpx", "httpx2"))
        self._http: Any = importlib.import_module(module)
        self._failures = failures
        self._proxy = proxy_of(target.base_url or "")
        self._max_in_flight = max_in_flight
        self._max_bytes = target.max_response_mb * MB
        self._below: Any = None

    def http_client(self) -> Any:
        """Return the client's `http_client`. It neither follows redirects nor looks for proxies and passwords."""
        return self._http.AsyncClient(
            transport=self,
            headers=ACCEPTED,
            follow_redirects=False,
            trust_env=False,
            timeout=self._http.Timeout(None, connect=CONNECT_TIMEOUT_S),
        )

    async def request(self, send: Any, path: str, body: bytes, headers: Mapping[str, Any]) -> tuple[int, str]:
        """Return status and body of a 2xx answer to one request. Raises `ModelError` for everything else.

        `send` is the client's `post` or `get`.
        """
        try:
            options = {"headers": sendable_headers(headers)}
            _BODY.set(body)
            response = await send(path, cast_to=self._http.Response, options=options)
        except Exception as error:
            raise self._failures.of_exception(error) from None
        answer: tuple[int, str] = response.extensions.pop(ANSWER)
        return answer

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request of the HTTP client. The body of the answer bypasses it, as an extension of the response."""
        body = _BODY.get()
        request.headers["Content-Length"] = str(len(body))
        request = self._http.Request(
            request.method, request.url, headers=request.headers, content=body, extensions=request.extensions
        )
        response = await self._opened().handle_async_request(request)
        try:
            coding = coding_of(response.headers)
            if coding and coding not in CODINGS:
                raise self._http.DecodingError(f'Content-Encoding "{coding}" was not asked for')
            content = await read_body(response.aiter_bytes(), self._max_bytes)
        finally:
            await response.aclose()
        answer = answer_of(response.status_code, response.headers, content, self._max_bytes, self._failures)
        return self._http.Response(answer[0], request=request, extensions={ANSWER: answer})

    async def aclose(self) -> None:
        if self._below is not None:
            await self._below.aclose()

    def _opened(self) -> Any:
        """Return httpx's own transport. The first request makes it: only there can a wrong proxy be reported."""
        if self._below is None:
            n = self._max_in_flight
            self._below = self._http.AsyncHTTPTransport(
                limits=self._http.Limits(max_connections=n, max_keepalive_connections=n),
                proxy=None if self._proxy is None else self._proxy.url,
            )
        return self._below


def added_headers(target: ModelTarget, provider: str, key: Mapping[str, Value], omit: Other) -> dict[str, Any]:
    """Return the headers to add to the client's own: `key`, and the config's, which take precedence.

    A client's variable has more headers, one "Name: value" per line. Only its own `provider` gets those. Older releases
    do not read the variable.
    """
    more = headers_in(os.environ.get(f"{provider.upper()}{CUSTOM_HEADERS}", ""))
    own = more if target.provider == provider else dict.fromkeys(more, omit)
    return merged(merged(own, {**key, "Content-Type": "application/json"}), target.headers)


def merged(ours: Mapping[str, Value], others: Mapping[str, Other]) -> dict[str, Value | Other]:
    """Merge headers. Those in `others` replace ours with the same name in any case, and get our spelling.

    >>> merged({"Content-Type": "a", "X": "b"}, {"content-type": "c", "Y": "d"})
    {'Content-Type': 'c', 'X': 'b', 'Y': 'd'}
    """
    spelling = {name.lower(): name for name in ours}
    return {**ours, **{spelling.get(name.lower(), name): value for name, value in others.items()}}
