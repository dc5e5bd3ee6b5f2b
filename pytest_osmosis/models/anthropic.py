"""Anthropic's Messages through the official anthropic client, for Anthropic and for compatible servers.

The client contributes headers and authentication; see `connections`. The headers that it
takes from ANTHROPIC_* variables go to provider "anthropic" alone, and it looks for no other way to log in.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient, Omit

from pytest_osmosis.models import messages
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.connections import OfficialModel, added_headers, merged
from pytest_osmosis.models.providers import service_at
from pytest_osmosis.models.targets import ModelTarget

SAMPLED = ("temperature", "top_p", "top_k")
SAMPLED_VERSION = "2023-06-01"
"""The API version that accepts `SAMPLED`. Anthropic's client has it before release 2, which asks for 2026-10-21."""


class AnthropicModel(OfficialModel):
    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        super().__init__(target, api_key, messages, max_in_flight, DefaultAsyncHttpxClient)
        self._client = AsyncAnthropic(
            api_key=api_key or "none",  # without a key, the client would look for others; `_headers` omits it
            base_url=self._root,
            max_retries=0,
            http_client=self._http_client(),
        )
        self._client.auth_token = None  # older releases take it from the environment beside the key, and send both
        key_headers = _key_headers(self._root, api_key, self._client.auth_headers)
        self._headers = added_headers(target, "anthropic", key_headers, Omit())

    def _headers_of(self, request: ChatRequest) -> Mapping[str, Any]:
        headers = super()._headers_of(request)
        is_sampled = any(name in request.sampling for name in SAMPLED)
        return merged({"anthropic-version": SAMPLED_VERSION}, headers) if is_sampled else headers


def _key_headers(base_url: str, api_key: str | None, own: Mapping[str, str]) -> dict[str, str | Omit]:
    """Return the headers with the key: the client's `own`, and both usual ones for a server other than Anthropic's."""
    if api_key is None:
        return {"Authorization": Omit(), "X-Api-Key": Omit()}
    return dict(own) if service_at(base_url) else {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key, **own}
