"""The clients that speak HTTP: one of OpenAI's APIs, or Anthropic's Messages, straight over aiohttp.

They differ in their headers. The light client has its own. The official openai and anthropic clients contribute theirs
and their authentication, and what they take from the variables OPENAI_* and ANTHROPIC_*, which goes to the provider of
that name alone. Nothing else of them is used: they read bodies without a bound, take an HTML page for an answer, raise
bare JSON errors, and need four times the CPU.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from pytest_osmosis import __version__
from pytest_osmosis.models import completions
from pytest_osmosis.models.base import ChatReply, ChatRequest, HttpApi
from pytest_osmosis.models.connections import Connections, merged
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.providers import CUSTOM_HEADERS, headers_in, service_at
from pytest_osmosis.models.targets import ModelTarget

SAMPLED = ("temperature", "top_p", "top_k")
SAMPLED_VERSION = {"anthropic-version": "2023-06-01"}
"""The API version that accepts `SAMPLED`. Anthropic's client has it before release 2, which asks for 2026-10-21."""


class HttpModel:
    """A `Model` for one event loop, which asks by `api` below `root`. With `api_key` None no key is sent."""

    def __init__(
        self,
        target: ModelTarget,
        api_key: str | None,
        headers: Mapping[str, str],
        *,
        max_in_flight: int,
        api: HttpApi = completions,
        root: str | None = None,
    ) -> None:
        assert target.base_url is not None
        self.target = target
        self.url = f"{root or target.base_url.rstrip('/')}{api.PATH}"
        self.failures = Failures(target.base_url, self.url, api_key, target.address_key, target.responses_advice)
        self._api = api
        self._headers = headers
        self._connections = Connections(target, self.failures, max_in_flight)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that the API cannot represent."""
        status, text = await self.post(self.url, self._api.write_request(request, self.target), request)
        return self._api.read_reply(status, text, self.target, self.failures)

    async def post(self, url: str, body: bytes, request: ChatRequest) -> tuple[int, str]:
        """Return status and body of a 2xx answer to a body that is sent for `request`. Raises `ModelError`."""
        headers = self.headers_for(request)
        return await self._connections.request(
            "POST", url, merged(headers, request.headers) if request.headers else headers, body
        )

    def headers_for(self, request: ChatRequest) -> Mapping[str, str]:
        """Return the headers of a request, besides its own."""
        return self._headers

    async def description(self) -> str:
        """Return what the server says about the model, as JSON text. Raises `ModelError`."""
        url = f"{(self.target.base_url or '').rstrip('/')}{self.target.description_path}"
        return (await self._connections.request("GET", url, self._headers, b""))[1]

    async def close(self) -> None:
        await self._connections.close()


class AnthropicModel(HttpModel):
    """Anthropic's Messages with the headers of the anthropic client, for Anthropic and for compatible servers."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient

        from pytest_osmosis.models import messages

        unused = DefaultAsyncHttpxClient(verify=False, trust_env=False)  # it sends nothing, and needs no certificates
        # Without a key, the client would look for others.
        client = AsyncAnthropic(api_key=api_key or "none", base_url=target.root, http_client=unused)
        client.auth_token = None  # older releases take it from the environment beside the key, and send both
        key: dict[str, str | None] = {"Authorization": None, "X-Api-Key": None}
        if api_key is not None:  # servers other than Anthropic's may look in either
            both = {"Authorization": f"Bearer {api_key}", "X-Api-Key": api_key}
            key = {**({} if service_at(target.base_url or "") else both), **client.auth_headers}
        own = client.default_headers
        self._sampled_headers = _with_config(merged(own, SAMPLED_VERSION), target, "anthropic", key)
        headers = _with_config(own, target, "anthropic", key)
        super().__init__(target, api_key, headers, max_in_flight=max_in_flight, api=messages, root=f"{target.root}/v1")

    def headers_for(self, request: ChatRequest) -> Mapping[str, str]:
        return self._sampled_headers if any(name in request.sampling for name in SAMPLED) else self._headers


def light_headers(target: ModelTarget, api_key: str | None) -> Mapping[str, str]:
    """Return the headers of our own client."""
    ours = {"Content-Type": "application/json", "User-Agent": f"pytest-osmosis/{__version__}"}
    key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
    return merged({**ours, **key}, target.headers)


def openai_headers(target: ModelTarget, api_key: str | None) -> Mapping[str, str]:
    """Return the headers of the openai client."""
    from openai import AsyncOpenAI, DefaultAsyncHttpxClient

    unused = DefaultAsyncHttpxClient(verify=False, trust_env=False)  # it sends nothing, and needs no certificates
    client = AsyncOpenAI(api_key=api_key or "none", base_url=target.base_url, http_client=unused)
    if target.provider != "openai":
        client.organization = client.project = None
    key = {"Authorization": None if api_key is None else f"Bearer {api_key}"}
    return _with_config(client.default_headers, target, "openai", key)


def _with_config(
    own: Mapping[str, object], target: ModelTarget, provider: str, key: Mapping[str, str | None]
) -> Mapping[str, str]:
    """Return a client's `own` headers with the key, and with the config's, which take precedence; None removes one.

    A client's variable has more headers, one "Name: value" per line. Only its own `provider` gets those. Older releases
    do not read the variable.
    """
    more = headers_in(os.environ.get(f"{provider.upper()}{CUSTOM_HEADERS}", ""))
    given = more if target.provider == provider else dict.fromkeys(more)
    headers = merged(merged(merged(own, given), {**key, "Content-Type": "application/json"}), target.headers)
    return {name: value for name, value in headers.items() if isinstance(value, str)}  # else the client omits it
