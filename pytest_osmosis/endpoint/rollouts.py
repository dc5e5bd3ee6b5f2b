"""The rollouts that may send requests to the endpoint, each under a URL and with a key of its own.

With `[agent] endpoint = "env"` they also share a URL and a key, which variables of the environment name. A request
there says by a header which rollout sends it (`hook_clients`). One without it is that of the only rollout in flight.
`endpoint_variables` are those from which clients and frameworks read the address of a model.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, NamedTuple

from pytest_osmosis.models.base import ChatReply, ChatRequest

PREFIX = "/rollouts/"
HEADER = "X-Osmosis-Rollout"

CURRENT: ContextVar[str | None] = ContextVar("osmosis_rollout", default=None)
"""The name of the rollout whose code runs. Tasks and `asyncio.to_thread` inherit it."""

Send = Callable[[ChatRequest], Awaitable[ChatReply]]
"""Sends a request to a model. Raises `ModelError` if there is no answer, `BoundError` if the rollout met a bound."""


class OverError(RuntimeError):
    """A request was sent for a rollout that is over."""


class Address(NamedTuple):
    """A URL of the endpoint, and the key for it."""

    base_url: str
    api_key: str


class EndpointRollout:
    """One rollout, as the endpoint sees it. `model` is the name of the model that answers; `run` names the run.

    `send` sends a request from the host's event loop, `send_in_standby` from that of the standby.
    """

    def __init__(self, run: str, model: str, send: Send, send_in_standby: Send) -> None:
        self.model = model
        self.name = f"{run}-{secrets.token_hex(8)}"
        self.key = secrets.token_urlsafe(24)
        self._sends: tuple[Send, Send] | None = (send, send_in_standby)
        self._requests: set[asyncio.Task[Any]] = set()

    @property
    def over(self) -> bool:
        return self._sends is None

    async def send(self, request: ChatRequest, *, in_standby: bool) -> ChatReply:
        """Send a request to the model. Raises `OverError` if the rollout is over, or ends meanwhile."""
        task = asyncio.current_task()
        assert task is not None
        if (sends := self._sends) is None:
            raise OverError
        self._requests.add(task)
        try:
            return await sends[in_standby](request)
        except asyncio.CancelledError:
            if self.over and task.uncancel() == 0:
                raise OverError from None
            raise
        finally:
            self._requests.discard(task)

    def end(self) -> None:
        """Refuse further requests, and end those that wait for an answer."""
        self._sends = None  # which have this object
        for task in list(self._requests):
            task.get_loop().call_soon_threadsafe(task.cancel)


REMOVED = ("ANTHROPIC_AUTH_TOKEN",)
"""Variables of keys that clients would send in place of the endpoint's."""
NO_TRACES = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""OpenAI Agents SDK sends each conversation to OpenAI if there is a key, even if it is the endpoint's."""
PROXIES = ("HTTP_PROXY", "ALL_PROXY")


def endpoint_variables(address: Address) -> dict[str, str | None]:
    """Return the variables of a host whose clients use the endpoint; None removes one."""
    return {
        "OPENAI_BASE_URL": address.base_url,
        "OPENAI_API_BASE": address.base_url,
        "OPENAI_API_KEY": address.api_key,
        "ANTHROPIC_BASE_URL": address.base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": address.api_key,
        **NO_TRACES,
        **dict.fromkeys(REMOVED),
    }


def proxy_variables(host: str, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that keep requests to `host` from a proxy; none are needed if no proxy is set."""
    if not any(environ.get(name) or environ.get(name.lower()) for name in PROXIES):
        return {}
    before = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if before.strip() == "*" or host in [each.strip() for each in before.split(",")]:
        return {}
    names = ",".join(filter(None, [before, host]))
    return {"no_proxy": names, "NO_PROXY": names}


def change_environ(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Change variables of this process, and return the changes that undo it."""
    before = {name: os.environ.get(name) for name in changes}
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


@contextmanager
def changed_environ(changes: Mapping[str, str | None]) -> Iterator[None]:
    before = change_environ(changes)
    try:
        yield
    finally:
        change_environ(before)


def hook_clients(host: str, port: int) -> None:
    """Let a request of a rollout's code to the shared URL name its rollout, wherever its client was made.

    These are http.client, on which urllib, urllib3 and requests are built, httpx, httpx2 and aiohttp. Requests of other
    clients belong to the only rollout in flight, or are refused.
    """
    hooks = {"http.client": _hook_http_client, "httpx": _hook_httpx, "httpx2": _hook_httpx, "aiohttp": _hook_aiohttp}
    for name, hook in hooks.items():
        with contextlib.suppress(ImportError):
            hook(host, port, importlib.import_module(name))


def _hook_http_client(host: str, port: int, module: ModuleType) -> None:
    put = module.HTTPConnection.putrequest

    @functools.wraps(put)
    def putrequest(self: Any, *args: Any, **options: Any) -> None:
        put(self, *args, **options)
        name = CURRENT.get()
        if name is not None and (self.host, self.port) == (host, port):
            self.putheader(HEADER, name)

    module.HTTPConnection.putrequest = putrequest


def _hook_httpx(host: str, port: int, module: ModuleType) -> None:
    def note(url: Any, headers: MutableMapping[str, str]) -> None:
        name = CURRENT.get()
        if name is not None and url.port == port and url.host == host:
            headers[HEADER] = name

    send, send_async = module.Client.send, module.AsyncClient.send

    @functools.wraps(send)
    def hooked(self: object, request: Any, *args: Any, **options: Any) -> Any:
        note(request.url, request.headers)
        return send(self, request, *args, **options)

    @functools.wraps(send_async)
    async def hooked_async(self: object, request: Any, *args: Any, **options: Any) -> Any:
        note(request.url, request.headers)
        return await send_async(self, request, *args, **options)

    module.Client.send, module.AsyncClient.send = hooked, hooked_async


def _hook_aiohttp(host: str, port: int, module: ModuleType) -> None:
    """Hook a private method, because sessions have no other place through which each request passes.

    Without it, requests over aiohttp belong to no rollout; tests/endpoint/test_environment.py notices.
    """
    session, address = module.ClientSession, f"{host}:{port}"
    request = session._request

    @functools.wraps(request)
    def hooked(self: Any, method: str, url: Any, **options: Any) -> Any:
        """Return the coroutine of the request. Another one around it would cost all requests to models."""
        name = CURRENT.get()
        if name is not None and address in f"{self._base_url} {url}":
            options["headers"] = {**dict(options.get("headers") or {}), HEADER: name}
        return request(self, method, url, **options)

    session._request = hooked
