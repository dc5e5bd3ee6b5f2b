"""Chat completions through LiteLLM (extra `litellm`), for providers with an API or a login of their own.

LiteLLM picks the provider by the model's prefix and reads its keys from its own variables, where `[model] api_key_env`
names none. Its retries are off (`retry` has them), and so is the download of its price list.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget

A_DAY_S = 86_400.0
"""No timeout: without one LiteLLM has its own."""


class LiteLLMModel:
    """A `Model` by way of LiteLLM; `api_key` None leaves the key to LiteLLM."""

    def __init__(self, target: ModelTarget, api_key: str | None) -> None:
        self._litellm = _imported()
        self._target = target
        self._failures = Failures(target.describe, api_key)
        self._takes_seed = _takes_seed(self._litellm, target.model)
        given = {
            "api_key": api_key,
            "api_base": target.base_url,
            "extra_headers": dict(target.headers) or None,
        }
        self._given = {name: value for name, value in given.items() if value is not None}

    async def chat(self, request: ChatRequest) -> ChatReply:
        """One request, one reply."""
        try:
            response = await self._litellm.acompletion(
                model=self._target.model,
                messages=list(request.messages),
                timeout=A_DAY_S,
                num_retries=0,
                max_retries=0,
                **_optional(request, self._takes_seed),
                **self._given,
            )
            content = response.model_dump_json().encode()
        except Exception as error:
            raise self._failure(error) from None
        return read_reply(200, content, self._failures)

    async def close(self) -> None:
        """Close the connections that LiteLLM keeps."""
        close = getattr(self._litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    def _failure(self, error: Exception) -> ModelError:
        """By the status that LiteLLM's exception has, where it comes from an answer of the provider."""
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or isinstance(error, self._litellm.APIConnectionError):
            return self._failures.of_exception(error)
        response = getattr(error, "response", None)
        headers: Mapping[str, str] = getattr(response, "headers", None) or {}
        return self._failures.of_status(status, headers, str(error), now=datetime.now(UTC))


def _imported() -> Any:
    """LiteLLM, without its price list from the network and without its advertisements on errors."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read at import
    litellm = importlib.import_module("litellm")
    litellm.__dict__["suppress_debug_info"] = True
    return litellm


def _takes_seed(litellm: Any, model: str) -> bool:
    """Whether LiteLLM passes a seed on to the provider; for the others it refuses the request."""
    try:
        supported = litellm.get_supported_openai_params(model=model)
    except Exception:  # a provider that it does not know: the request will say so
        return True
    return supported is None or "seed" in supported


def _optional(request: ChatRequest, takes_seed: bool) -> dict[str, Any]:
    """Tools, seed and sampling, where there are any."""
    tools = {"tools": list(request.tools)} if request.tools else {}
    seed = {"seed": request.seed} if request.seed is not None and takes_seed else {}
    return {**tools, **seed, **request.sampling}
