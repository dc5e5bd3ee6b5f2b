"""OpenAI's APIs over bare aiohttp: the behaviour of the openai client, for a quarter of its CPU."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_osmosis import __version__
from pytest_osmosis.models import completions
from pytest_osmosis.models.base import ChatReply, ChatRequest, HttpApi
from pytest_osmosis.models.connections import Connections, merged
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget


class LightModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(
        self, target: ModelTarget, api_key: str | None, *, max_in_flight: int, api: HttpApi = completions
    ) -> None:
        assert target.base_url is not None
        self.target = target
        self.url = f"{target.base_url.rstrip('/')}{api.PATH}"
        self.failures = Failures(target.base_url, self.url, api_key, target.address_key, target.responses_advice)
        self._api = api
        self._connections = Connections(target, self.failures, max_in_flight)
        ours = {"Content-Type": "application/json", "User-Agent": f"pytest-osmosis/{__version__}"}
        if api_key is not None:
            ours["Authorization"] = f"Bearer {api_key}"
        self._headers = merged(ours, target.headers)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        status, text = await self.post(self.url, self._api.write_request(request, self.target), request.headers)
        return self._api.read_reply(status, text, self.target, self.failures)

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str]:
        """Return status and body of a 2xx answer; `headers` are those of this request alone. Raises `ModelError`."""
        return await self._connections.request(
            "POST", url, merged(self._headers, headers) if headers else self._headers, body
        )

    async def description(self) -> str:
        """Return what the server says about the model, as JSON text. Raises `ModelError`."""
        url = f"{(self.target.base_url or '').rstrip('/')}{self.target.description_path}"
        return (await self._connections.request("GET", url, self._headers, b""))[1]

    async def close(self) -> None:
        await self._connections.close()
