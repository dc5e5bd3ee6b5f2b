"""Chat completions through the official openai client, for OpenAI and for every server that speaks like it.

The client contributes connections, proxies, headers and authentication. Its retries are off (`retry` has
them), its redirects are off (nothing is sent but to the configured address), and its parsing is not used: it
takes an HTML page for an answer and raises bare JSON errors. What the client would add from OPENAI_*
variables (a key, an organization, headers) goes to provider "openai" alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime

import httpx2
from openai import APIStatusError, AsyncOpenAI, DefaultAioHttpClient, Omit, omit

from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply, write_request
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import OPENAI_URL, ModelTarget

CONNECT_TIMEOUT_S = 10.0


class OpenAIModel:
    """A `Model` over HTTP, used from one event loop; `api_key` None means that none is sent."""

    def __init__(self, target: ModelTarget, api_key: str | None, *, max_in_flight: int) -> None:
        base_url = target.base_url or OPENAI_URL
        self._target = target
        self._failures = Failures(base_url, api_key)
        self._client = AsyncOpenAI(
            api_key=api_key or "none",  # the client wants one; `_headers` keeps it from being sent
            base_url=base_url,
            max_retries=0,
            http_client=DefaultAioHttpClient(
                follow_redirects=False,
                limits=httpx2.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight),
            ),
        )
        if target.provider != "openai":
            self._client.organization = None
            self._client.project = None
        self._headers = _headers(target, api_key, os.environ)

    async def chat(self, request: ChatRequest) -> ChatReply:
        """One request, one reply. Messages that are no JSON raise `TypeError` or `ValueError`, unsent."""
        response = await self._post(write_request(request, self._target), request.timeout_s)
        return read_reply(response.status_code, response.content, self._failures)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _post(self, body: bytes, timeout_s: float) -> httpx2.Response:
        try:
            return await self._client.post(
                "/chat/completions",
                cast_to=httpx2.Response,
                content=body,
                options={
                    "headers": self._headers,
                    "timeout": httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S)),
                },
            )
        except APIStatusError as error:
            response = error.response
            raise self._failures.of_status(
                response.status_code, response.headers, response.text, now=datetime.now(UTC)
            ) from None
        except Exception as error:
            raise self._failures.of_exception(error) from None


def _headers(target: ModelTarget, api_key: str | None, environ: Mapping[str, str]) -> dict[str, str | Omit]:
    """The headers of every request beside the client's own; the config's win, ambient ones are taken out."""
    ours: dict[str, str | Omit] = {}
    if target.provider != "openai":
        lines = environ.get("OPENAI_CUSTOM_HEADERS", "").split("\n")
        ours.update({line.partition(":")[0].strip(): omit for line in lines if ":" in line})
    ours["Authorization"] = omit if api_key is None else f"Bearer {api_key}"
    ours["Content-Type"] = "application/json"
    given = {name.lower() for name in target.headers}
    return {**{name: value for name, value in ours.items() if name.lower() not in given}, **target.headers}
