"""Anthropic's Messages through the official anthropic client, for Anthropic and for compatible servers.

The client contributes connections, proxies, headers and authentication; see `official_clients`. The headers that it
takes from ANTHROPIC_* variables go to provider "anthropic" alone, and it looks for no other way to log in.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from anthropic import APIStatusError, AsyncAnthropic, DefaultAioHttpClient, Omit, omit

from pytest_osmosis.models import official_clients
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.messages import read_reply, write_request
from pytest_osmosis.models.providers import service_at
from pytest_osmosis.models.targets import ModelTarget

KEY_HEADERS = ("Authorization", "X-Api-Key")
"""The headers in which a client may send a key."""

SAMPLED = ("temperature", "top_p", "top_k")
SAMPLED_VERSION = "2023-06-01"
"""The API version that accepts `SAMPLED`. The client's own version, 2026-10-21, refuses them whatever their value; it
is used for requests without them."""


class AnthropicModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        assert target.base_url is not None
        self._target = target
        self._failures = Failures(target.base_url, api_key)
        self._transport = official_clients.Transport(DefaultAioHttpClient, APIStatusError, self._failures)
        self._client = AsyncAnthropic(
            api_key=api_key or "none",  # without one the client looks for others; `_headers` keeps it from being sent
            base_url=_root(target.base_url),
            max_retries=0,
            http_client=self._transport.connections(max_in_flight),
        )
        self._headers = _headers(target, _key_headers(target.base_url, api_key, self._client.auth_headers))
        self._sampled_headers = official_clients.merged({"anthropic-version": SAMPLED_VERSION}, self._headers)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Messages that the API cannot hold raise `TypeError` or `ValueError` before that."""
        sampled = any(name in request.sampling for name in SAMPLED)
        headers = self._sampled_headers if sampled else self._headers
        body = write_request(request, self._target)
        answer = await self._transport.post(self._client, "/v1/messages", body, headers)
        return read_reply(*answer, self._failures)

    async def close(self) -> None:
        await self._client.close()


def _root(base_url: str) -> str:
    """Return the address without the /v1 that this client adds, so that one base_url suits every client.

    >>> _root("http://localhost:8123/v1/")
    'http://localhost:8123'
    """
    return base_url.rstrip("/").removesuffix("/v1")


def _key_headers(base_url: str, api_key: str | None, own: Mapping[str, str]) -> dict[str, str | Omit]:
    """Return the headers with the key: the client's `own`, and for a server other than Anthropic's both usual ones."""
    if api_key is None:
        return dict.fromkeys(KEY_HEADERS, omit)
    everywhere = {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key}
    return {**({} if service_at(base_url) else everywhere), **own}


def _headers(target: ModelTarget, key: Mapping[str, str | Omit]) -> dict[str, str | Omit]:
    """Return the headers to add to the client's own. The config's win; those from variables are removed."""
    ours: dict[str, str | Omit] = {}
    if target.provider != "anthropic":
        ours.update(
            dict.fromkeys(official_clients.ambient_headers(os.environ.get("ANTHROPIC_CUSTOM_HEADERS", "")), omit)
        )
    return official_clients.merged({**ours, **key, "Content-Type": "application/json"}, target.headers)
