"""Chat completions and Responses through the official openai client, for OpenAI and every compatible server.

The client contributes headers and authentication; see `connections`. The key, organization
and headers that it takes from OPENAI_* variables go to provider "openai" alone.
"""

from __future__ import annotations

from openai import AsyncOpenAI, DefaultAsyncHttpxClient, Omit

from pytest_osmosis.models import completions
from pytest_osmosis.models.base import HttpApi
from pytest_osmosis.models.connections import OfficialModel, added_headers
from pytest_osmosis.models.targets import ModelTarget


class OpenAIModel(OfficialModel):
    def __init__(
        self, target: ModelTarget, api_key: str | None, *, max_in_flight: int, api: HttpApi = completions
    ) -> None:
        super().__init__(target, api_key, api, max_in_flight, DefaultAsyncHttpxClient)
        self._client = AsyncOpenAI(
            api_key=api_key or "none",  # the client requires a key; `_headers` omits it
            base_url=target.base_url,
            max_retries=0,
            http_client=self._http_client(),
        )
        if target.provider != "openai":
            self._client.organization = None
            self._client.project = None
        authorization = Omit() if api_key is None else f"Bearer {api_key}"
        self._headers = added_headers(target, "openai", {"Authorization": authorization}, Omit())
