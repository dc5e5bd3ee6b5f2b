"""Chat completions and Responses through the official openai client, for OpenAI and every compatible server.

The client contributes headers and authentication; see `connections`. The key, organization
and headers that it takes from OPENAI_* variables go to provider "openai" alone.
"""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit

from pytest_osmosis.models import completions, connections
from pytest_osmosis.models.base import ChatReply, ChatRequest, HttpApi
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget


class OpenAIModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(
        self, target: ModelTarget, api_key: str | None, *, max_in_flight: int, api: HttpApi = completions
    ) -> None:
        assert target.base_url is not None
        self.target = target
        self._api = api
        url = f"{target.base_url.rstrip('/')}{api.PATH}"
        self._failures = Failures(target.base_url, url, api_key, target.address_key, target.responses_advice)
        self._transport = connections.Transport(DefaultAsyncHttpxClient, target, self._failures, max_in_flight)
        self._client = AsyncOpenAI(
            api_key=api_key or "none",  # the client requires a key; `_headers` omits it
            base_url=target.base_url,
            max_retries=0,
            http_client=self._transport.http_client(),
        )
        if target.provider != "openai":
            self._client.organization = None
            self._client.project = None
        authorization = Omit() if api_key is None else f"Bearer {api_key}"
        self._headers = connections.added_headers(target, "openai", {"Authorization": authorization}, Omit())

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        body = self._api.write_request(request, self.target)
        headers = connections.merged(self._headers, request.headers)
        status, text = await self._transport.request(self._client.post, self._api.PATH, body, headers)
        return self._api.read_reply(status, text, self.target, self._failures)

    async def description(self) -> str:
        """Return what the server says about the model, as JSON text. Raises `ModelError`."""
        return (await self._transport.request(self._client.get, self.target.description_path, b"", self._headers))[1]

    async def close(self) -> None:
        await self._client.close()
