"""Chat completions over bare aiohttp: the behaviour of the openai client, for about a quarter of its CPU."""

from __future__ import annotations

from pytest_osmosis import __version__
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply, write_request
from pytest_osmosis.models.connections import Connections
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.official_clients import merged
from pytest_osmosis.models.targets import ModelTarget


class LightModel:
    """A `Model` over HTTP, for one event loop. With `api_key` None no key is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        assert target.base_url is not None
        self._target = target
        self._url = f"{target.base_url.rstrip('/')}/chat/completions"
        self._failures = Failures(target.base_url, self._url, api_key)
        self._connections = Connections(target, self._failures, max_in_flight)
        ours = {"Content-Type": "application/json", "User-Agent": f"pytest-osmosis/{__version__}"}
        if api_key is not None:
            ours["Authorization"] = f"Bearer {api_key}"
        self._headers = merged(ours, target.headers)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        headers = merged(self._headers, request.headers) if request.headers else self._headers
        status, text = await self._connections.post(self._url, headers, write_request(request, self._target))
        return read_reply(status, text, self._target, self._failures)

    async def close(self) -> None:
        await self._connections.close()
