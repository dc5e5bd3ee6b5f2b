"""Chat completions through LiteLLM (extra `litellm`), for providers with an API or a login of their own.

LiteLLM picks the provider by the model's prefix. Unless `[model] api_key_env` is set, it reads keys from variables of
its own. Its retries are off (`retry` has them), and so is the download of its price list.

LiteLLM makes statuses of all errors, whether a server sent one or not, changes bodies, and invents usage. So errors,
and replies in the shape of chat completions, are read from the server's own answer, which a `WatchedExchange` keeps.
Redirects end there, because LiteLLM would follow them to any host with its keys.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import re
import warnings
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_exceptions import ContentEncodingError
from msgspec import Struct

from pytest_osmosis.errors import ModelError
from pytest_osmosis.models.base import ChatReply, ChatRequest
from pytest_osmosis.models.completions import read_reply, sendable
from pytest_osmosis.models.connections import (
    LARGE_HEADERS,
    MB,
    SilentConnector,
    answer_of,
    coding_of,
    merged,
    read_body,
    sendable_headers,
)
from pytest_osmosis.models.failures import Failures, causes_of, error_in
from pytest_osmosis.models.json_bodies import encoded, given, json_object
from pytest_osmosis.models.targets import ModelTarget


class WatchedExchange(Struct):
    """The last answer to a request, with its body up to about `max_bytes`, or the error in place of an answer."""

    max_bytes: int = 64 * MB
    url: str = ""
    status: int | None = None
    headers: Mapping[str, str] = {}
    body: bytes = b""
    error: Exception | None = None

    @property
    def is_chat_completion(self) -> bool:
        """True for an answer in the shape of chat completions."""
        return self.status is not None and self.status // 100 == 2 and b'"choices"' in self.body


EXCHANGE: ContextVar[WatchedExchange] = ContextVar("EXCHANGE")
"""The exchange of the request that the current task sends."""


class NotReadOn(aiohttp.ClientError):
    """The server answered with a redirect, or with a body beyond the bound, which the library is not to see."""


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # aiohttp prefers options, which the library would pass

    class WatchedSession(aiohttp.ClientSession):
        """A session whose answers are bounded, and put into `EXCHANGE`."""

        def __init__(self, **options: Any) -> None:
            super().__init__(**{**options, **LARGE_HEADERS, "middlewares": (_watched,)})


async def _watched(request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Send a request, and note what comes of it. Raises `NotReadOn`.

    No packed body is asked for, because the library would unpack it without a bound.
    """
    exchange = EXCHANGE.get(None) or WatchedExchange()
    exchange.url, exchange.status, exchange.error = str(request.url), None, None
    request.headers["Accept-Encoding"] = "identity"
    try:
        async with await send(request) as response:
            if coding := coding_of(response.headers):
                raise ContentEncodingError(f'Content-Encoding "{coding}" was not asked for')
            body = await read_body(response.content.iter_any(), exchange.max_bytes)
    except Exception as error:
        exchange.error = error
        raise
    exchange.status, exchange.headers, exchange.body = response.status, response.headers, body
    if response.status // 100 == 3 or len(body) > exchange.max_bytes:
        raise NotReadOn
    loop = asyncio.get_running_loop()
    response.content = aiohttp.StreamReader(BaseProtocol(loop), limit=2**62, loop=loop)
    response.content.feed_data(body)
    response.content.feed_eof()
    return response


A_DAY_S = 86_400.0  # replaces LiteLLM's own timeout, because callers enforce theirs
HEADERS = ("Authorization", "Content-Type", "User-Agent", "api-key", "x-api-key")
"""Headers as LiteLLM spells them; it would send others with the same name in addition."""
SHARE = 3
"""The part of the bound that a body may have, because LiteLLM makes six copies of it and other clients two."""
PREFIX = re.compile(r"^litellm\.\w+: (\w+Error: )?(\w+Exception( \w+)? ?-? ?)?")
"""LiteLLM's words before a message: "litellm.NotFoundError: NotFoundError: OpenAIException - "."""


class LiteLLMModel:
    """A `Model` through LiteLLM. With `api_key` None, LiteLLM looks for the key."""

    def __init__(self, target: ModelTarget, api_key: str | None) -> None:
        self._litellm = _imported()
        _watch_sessions()
        self._target = target
        self._api_key = api_key
        self._takes_seed = _takes_seed(self._litellm, target.model)
        self._headers = merged(dict.fromkeys(HEADERS, ""), target.headers)
        self._options = given({"api_key": api_key, "api_base": _api_base(target)})

    async def chat(self, request: ChatRequest) -> ChatReply:
        """Send one request. Raises `TypeError` or `ValueError` for messages that are not JSON."""
        arguments: dict[str, Any] = {"messages": sendable(request.messages)}
        if request.tools:
            arguments["tools"] = list(request.tools)
        if request.seed is not None and self._takes_seed:
            arguments["seed"] = request.seed
        arguments |= request.sampling
        encoded(arguments)
        headers = {name: value for name, value in merged(self._headers, request.headers).items() if value}
        exchange = WatchedExchange(self._target.max_response_mb * MB // SHARE)
        EXCHANGE.set(exchange)
        try:
            sendable_headers({"key": self._api_key})
            response = await self._litellm.acompletion(
                model=self._target.model,
                timeout=A_DAY_S,
                num_retries=0,
                max_retries=0,
                extra_headers=sendable_headers(headers) or None,
                **self._options,
                **arguments,
            )
            if not exchange.is_chat_completion:
                text = response.model_dump_json()
        except Exception as error:
            if not exchange.is_chat_completion:
                raise self._failure(error, exchange) from None
        failures = self._failures(exchange)
        if exchange.is_chat_completion:
            text = _text(exchange, failures)
        return read_reply(200, text, self._target, failures)

    async def close(self) -> None:
        """Close the clients that LiteLLM keeps, and let it forget them: it would use closed ones again."""
        await self._litellm.close_litellm_async_clients()
        self._litellm.in_memory_llm_clients_cache.flush_cache()

    def _failures(self, exchange: WatchedExchange) -> Failures:
        address = self._target.base_url or _origin(exchange.url) or self._target.describe
        return Failures(address, exchange.url or address, self._api_key)

    def _failure(self, error: Exception, exchange: WatchedExchange) -> ModelError:
        failures = self._failures(exchange)
        if exchange.error is not None or isinstance(error, UnicodeError):
            return failures.of_exception(exchange.error or error)
        text = PREFIX.sub("", str(error), count=1)
        if exchange.status is not None:
            return _error_in(exchange, text, self._target, failures)
        causes = causes_of(error, implicit=True)
        of_connection = next((each for each in causes if isinstance(each, aiohttp.ClientError | OSError)), None)
        if of_connection is not None:
            return failures.of_exception(of_connection)
        headers, status = getattr(error, "litellm_response_headers", None), getattr(error, "status_code", None)
        if headers and isinstance(status, int):  # LiteLLM reaches this provider without aiohttp
            return failures.of_status(status, headers, text, now=datetime.now(UTC))
        return failures.unsent(text)


def _error_in(exchange: WatchedExchange, text: str, target: ModelTarget, failures: Failures) -> ModelError:
    """Return the error in a server's answer. `text` is LiteLLM's, for answers that only LiteLLM understands."""
    status = exchange.status or 0
    try:
        own = _text(exchange, failures)
        body = json_object(status, own, failures)
        if error_in(body) is not None:
            read_reply(status, own, target, failures)
    except ModelError as error:
        return error
    return failures.no_answer(status, "an answer that LiteLLM cannot read", {"error": text})


def _text(exchange: WatchedExchange, failures: Failures) -> str:
    return answer_of(exchange.status or 0, exchange.headers, exchange.body, exchange.max_bytes, failures)[1]


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.netloc else ""


def _api_base(target: ModelTarget) -> str | None:
    """Return the address as LiteLLM wants it: for Anthropic's API without the /v1 that it adds."""
    if target.base_url is None or target.provider != "anthropic":
        return target.base_url
    return target.base_url.rstrip("/").removesuffix("/v1")


def _imported() -> Any:
    """Import LiteLLM without its download of a price list and without its advertisements on errors."""
    os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")  # read at import
    litellm = importlib.import_module("litellm")
    litellm.__dict__["suppress_debug_info"] = True
    return litellm


def _watch_sessions() -> None:
    """Let LiteLLM open watched sessions.

    It has no option for that: it takes a session or a client for some providers, and opens its own for others. If it no
    longer opens them by these names, answers are neither bounded nor kept: `make test-litellm` notices.
    """
    opening = importlib.import_module("litellm.llms.custom_httpx.http_handler")
    opening.__dict__.update(ClientSession=WatchedSession, TCPConnector=SilentConnector)


def _takes_seed(litellm: Any, model: str) -> bool:
    """Return True if LiteLLM accepts a seed for the model. Otherwise it would refuse a request with one."""
    try:
        supported = litellm.get_supported_openai_params(model=model)
    except Exception:  # it does not know the provider, and the request will say so
        return True
    return supported is None or "seed" in supported
