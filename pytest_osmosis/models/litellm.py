"""Chat completions through LiteLLM (extra `litellm`), for providers with an API or a login of their own.

LiteLLM picks the provider by the model's prefix. Unless `[model] api_key_env` is set, it reads keys from variables of
its own. Its retries are off (`retry` has them), and so is the download of its price list.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.answer_bodies import MB
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply
from pytest_osmosis.models.connections import BROKEN, SilentConnector, bounded_session
from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget

A_DAY_S = 86_400.0  # replaces LiteLLM's own timeout, because callers enforce theirs


class LiteLLMModel:
    """A `Model` through LiteLLM. With `api_key` None, LiteLLM looks for the key."""

    def __init__(self, target: ModelTarget, api_key: str | None) -> None:
        self._litellm = _imported()
        _bound_answers(target.max_response_mb * MB)
        self._target = target
        self._failures = Failures(target.describe, target.base_url or target.describe, api_key)
        self._takes_seed = _takes_seed(self._litellm, target.model)
        options = {"api_key": api_key, "api_base": target.base_url, "extra_headers": dict(target.headers) or None}
        self._options = {name: value for name, value in options.items() if value is not None}

    async def chat(self, request: ChatRequest) -> ChatReply:
        broken: list[Exception] = []
        BROKEN.set(broken)
        try:
            response = await self._litellm.acompletion(
                model=self._target.model,
                messages=list(request.messages),
                timeout=A_DAY_S,
                num_retries=0,
                max_retries=0,
                **_optional(request, self._takes_seed),
                **self._options,
            )
            text = response.model_dump_json()
        except Exception as error:
            raise self._failure(broken[-1] if broken else error) from None
        return read_reply(200, text, self._failures)

    async def close(self) -> None:
        """Close the connections that LiteLLM keeps."""
        close = getattr(self._litellm, "close_litellm_async_clients", None)
        if close is not None:
            await close()

    def _failure(self, error: Exception) -> ModelError:
        status = getattr(error, "status_code", None)
        if not isinstance(status, int) or isinstance(error, self._litellm.APIConnectionError):
            return self._failures.of_exception(error)
        response = getattr(error, "response", None)
        headers: Mapping[str, str] = getattr(response, "headers", None) or {}
        return self._failures.of_status(status, headers, str(error), now=datetime.now(UTC))


def _imported() -> Any:
    """Import LiteLLM without its download of a price list and without its advertisements on errors."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read at import
    litellm = importlib.import_module("litellm")
    litellm.__dict__["suppress_debug_info"] = True
    return litellm


def _bound_answers(max_bytes: int) -> None:
    """Let LiteLLM open its sessions with our bounds.

    It has no option for that: it takes a session or a client for some providers, and opens its own for others. If it no
    longer opens them by these names, answers are not bounded: tests/unit/models/test_litellm.py notices.
    """
    opening = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    opening.__dict__.update(ClientSession=bounded_session(max_bytes), TCPConnector=SilentConnector)


def _takes_seed(litellm: Any, model: str) -> bool:
    """Return True if LiteLLM accepts a seed for the model. Otherwise it would refuse a request with one."""
    try:
        supported = litellm.get_supported_openai_params(model=model)
    except Exception:  # it does not know the provider, and the request will say so
        return True
    return supported is None or "seed" in supported


def _optional(request: ChatRequest, takes_seed: bool) -> dict[str, Any]:
    tools = {"tools": list(request.tools)} if request.tools else {}
    seed = {"seed": request.seed} if request.seed is not None and takes_seed else {}
    return {**tools, **seed, **request.sampling}
