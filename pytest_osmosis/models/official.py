"""The official openai and anthropic clients, which are generated from one template and used here in one way.

A client contributes headers, authentication and its transport, that of httpx. Its retries are off (`retry` has them).
Its parsing is not used, because it reads bodies without a bound, takes an HTML page for an answer, and raises bare JSON
errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from importlib import import_module
from typing import Any

from pytest_osmosis.models import completions, messages
from pytest_osmosis.models.base import ChatRequest, HttpApi
from pytest_osmosis.models.connections import (
    ACCEPTED,
    CODINGS,
    CONNECT_TIMEOUT_S,
    HttpModel,
    answer_of,
    coding_of,
    merged,
    read_body,
    sendable_headers,
)
from pytest_osmosis.models.providers import CUSTOM_HEADERS, headers_in, service_at
from pytest_osmosis.models.targets import ModelTarget

ANSWER = "pytest_osmosis.answer"

_BODY: ContextVar[bytes] = ContextVar("pytest_osmosis.body")
"""The body of the request in flight. It bypasses the client, which takes bytes only in its newer releases."""


class OfficialModel(HttpModel):
    """A model that is asked through an official client, `_client`, which subclasses set. It is the client's transport.

    `library` is the client's. Its HTTP comes from httpx or httpx2, depending on its version.
    """

    _client: Any

    def __init__(
        self, target: ModelTarget, api_key: str | None, api: HttpApi, max_in_flight: int, library: Any
    ) -> None:
        super().__init__(target, api_key, api, max_in_flight)
        bases = library.DefaultAsyncHttpxClient.__mro__
        module = next(base.__module__ for base in bases if base.__module__ in ("httpx", "httpx2"))
        self._http: Any = import_module(module)
        self._below: Any = None

    def _http_client(self) -> Any:
        """Return the client's `http_client`. It neither follows redirects nor looks for proxies and passwords."""
        return self._http.AsyncClient(
            transport=self,
            headers=ACCEPTED,
            follow_redirects=False,
            trust_env=False,
            timeout=self._http.Timeout(None, connect=CONNECT_TIMEOUT_S),
        )

    async def _send(self, body: bytes, headers: Mapping[str, Any]) -> tuple[int, str]:
        try:
            options = {"headers": sendable_headers(headers)}
            _BODY.set(body)
            response = await self._client.post(self._api.PATH, cast_to=self._http.Response, options=options)
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
        if self._below is None:  # only a request can report that a proxy is wrong
            n = self._max_in_flight
            limits = self._http.Limits(max_connections=n, max_keepalive_connections=n)
            self._below = self._http.AsyncHTTPTransport(limits=limits, proxy=self._proxy)
        response = await self._below.handle_async_request(request)
        try:
            coding = coding_of(response.headers)
            if coding and coding not in CODINGS:
                raise self._http.DecodingError(f'Content-Encoding "{coding}" was not asked for')
            content = await read_body(response.aiter_bytes(), self._max_bytes)
        finally:
            await response.aclose()
        answer = answer_of(response.status_code, response.headers, content, self._max_bytes, self._failures)
        return self._http.Response(answer[0], request=request, extensions={ANSWER: answer})

    async def close(self) -> None:
        await self._client.close()

    async def aclose(self) -> None:
        """Close the connections, for the HTTP client, whose transport this is."""
        if self._below is not None:
            await self._below.aclose()


def _added_headers(target: ModelTarget, provider: str, key: Mapping[str, Any], omit: Any) -> dict[str, Any]:
    """Return the headers to add to the client's own: `key`, and the config's, which take precedence.

    A client's variable has more headers, one "Name: value" per line. Only its own `provider` gets those. Older releases
    do not read the variable.
    """
    more = headers_in(os.environ.get(f"{provider.upper()}{CUSTOM_HEADERS}", ""))
    own = more if target.provider == provider else dict.fromkeys(more, omit)
    return merged(merged(own, {**key, "Content-Type": "application/json"}), target.headers)


class OpenAIModel(OfficialModel):
    """OpenAI's APIs, at OpenAI and at compatible servers.

    The key, organization and headers that the client takes from OPENAI_* variables go to provider "openai" alone.
    """

    def __init__(
        self, target: ModelTarget, api_key: str | None, *, max_in_flight: int, api: HttpApi = completions
    ) -> None:
        import openai

        super().__init__(target, api_key, api, max_in_flight, openai)
        self._client = openai.AsyncOpenAI(
            api_key=api_key or "none",  # the client requires a key; `_headers` omits it
            base_url=target.base_url,
            max_retries=0,
            http_client=self._http_client(),
        )
        if target.provider != "openai":
            self._client.organization = None
            self._client.project = None
        authorization = openai.Omit() if api_key is None else f"Bearer {api_key}"
        self._headers = _added_headers(target, "openai", {"Authorization": authorization}, openai.Omit())


SAMPLED = ("temperature", "top_p", "top_k")
SAMPLED_VERSION = "2023-06-01"
"""The API version that accepts `SAMPLED`. Anthropic's client has it before release 2, which asks for 2026-10-21."""


class AnthropicModel(OfficialModel):
    """Anthropic's Messages, at Anthropic and at compatible servers.

    The headers that the client takes from ANTHROPIC_* variables go to provider "anthropic" alone, and it looks for no
    other way to log in.
    """

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        import anthropic

        super().__init__(target, api_key, messages, max_in_flight, anthropic)
        self._client = anthropic.AsyncAnthropic(
            api_key=api_key or "none",  # without a key, the client would look for others; `_headers` omits it
            base_url=self._root,
            max_retries=0,
            http_client=self._http_client(),
        )
        self._client.auth_token = None  # older releases take it from the environment beside the key, and send both
        omit = anthropic.Omit()
        if api_key is None:
            key: dict[str, Any] = {"Authorization": omit, "X-Api-Key": omit}
        else:  # both usual headers for a server other than Anthropic's
            both = {} if service_at(self._root) else {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key}
            key = {**both, **self._client.auth_headers}
        self._headers = _added_headers(target, "anthropic", key, omit)

    def _headers_of(self, request: ChatRequest) -> Mapping[str, Any]:
        headers = super()._headers_of(request)
        is_sampled = any(name in request.sampling for name in SAMPLED)
        return merged({"anthropic-version": SAMPLED_VERSION}, headers) if is_sampled else headers
