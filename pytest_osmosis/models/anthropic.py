"""Anthropic's Messages through the official anthropic client, for Anthropic and for compatible servers.

The client contributes headers and authentication; see `connections`. The headers that it
takes from ANTHROPIC_* variables go to provider "anthropic" alone, and it looks for no other way to log in.
"""

from __future__ import annotations

from collections.abc import Mapping

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Omit

from pytest_osmosis.models import connections
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.messages import read_reply, write_request
from pytest_osmosis.models.providers import service_at
from pytest_osmosis.models.targets import ModelTarget

PATH = "/v1/messages"
SAMPLED = ("temperature", "top_p", "top_k")
SAMPLED_VERSION = "2023-06-01"
"""The API version that accepts `SAMPLED`. Anthropic's client has it before release 2, which asks for 2026-10-21."""


class AnthropicModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        assert target.base_url is not None
        self._target = target
        self._failures = Failures(target.base_url, _root(target.base_url) + PATH, api_key, target.address_key)
        self._transport = connections.Transport(DefaultAsyncHttpxClient, target, self._failures, max_in_flight)
        self._client = AsyncAnthropic(
            api_key=api_key or "none",  # without a key, the client would look for others; `_headers` omits it
            base_url=_root(target.base_url),
            max_retries=0,
            http_client=self._transport.http_client(),
        )
        self._client.auth_token = None  # older releases take it from the environment beside the key, and send both
        key_headers = _key_headers(target.base_url, api_key, self._client.auth_headers)
        self._headers = connections.added_headers(target, "anthropic", key_headers, Omit())
        self._sampled_headers = connections.merged({"anthropic-version": SAMPLED_VERSION}, self._headers)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that the API cannot represent."""
        sampled = any(name in request.sampling for name in SAMPLED)
        headers = self._sampled_headers if sampled else self._headers
        body = write_request(request, self._target)
        headers = connections.merged(headers, request.headers)
        status, text = await self._transport.request(self._client.post, PATH, body, headers)
        return read_reply(status, text, self._target, self._failures)

    async def close(self) -> None:
        await self._client.close()


def _root(base_url: str) -> str:
    """Return the address without the /v1 that this client adds, so that one base_url suits every client.

    >>> _root("http://localhost:8123/v1/")
    'http://localhost:8123'
    """
    return base_url.rstrip("/").removesuffix("/v1")


def _key_headers(base_url: str, api_key: str | None, own: Mapping[str, str]) -> dict[str, str | Omit]:
    """Return the headers with the key: the client's `own`, and both usual ones for a server other than Anthropic's."""
    if api_key is None:
        return {"Authorization": Omit(), "X-Api-Key": Omit()}
    return dict(own) if service_at(base_url) else {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key, **own}
