"""Hooks in HTTP clients, by which a request to the shared URL of the endpoint says which rollout sends it.

They run where a request is sent, and so in the context of the rollout's code, wherever its client was made. Requests to
other addresses are left alone. Clients that are not imported yet get their hook when they are. Other clients get none:
their requests belong to the only rollout in flight, or are refused (`exchange`).
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from pytest_osmosis.endpoint.rollouts import CURRENT, HEADER

Hook = Callable[[ModuleType], None]
"""Puts a hook into the classes of a module."""


def install(host: str, port: int) -> None:
    """Hook http.client, on which urllib, urllib3 and requests are built, and httpx, httpx2 and aiohttp."""
    _hook_http_client(host, port)
    hook_httpx = functools.partial(_hook_httpx, host, port)
    hook_aiohttp = functools.partial(_hook_aiohttp, f"{host}:{port}")
    hooks: dict[str, Hook] = {"httpx": hook_httpx, "httpx2": hook_httpx, "aiohttp": hook_aiohttp}
    for name in hooks.keys() & sys.modules.keys():
        hooks.pop(name)(sys.modules[name])
    sys.meta_path.insert(0, _AtImport(hooks))


class _AtImport(MetaPathFinder):
    """Finds nothing by itself, but has modules hooked once others have found and loaded them.

    To be found is not enough: much code looks by `importlib.util.find_spec` for what it may import later.
    """

    def __init__(self, hooks: Mapping[str, Hook]) -> None:
        self._hooks = hooks
        self._found_by_others = threading.local()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        hook = self._hooks.get(fullname)
        if hook is None or getattr(self._found_by_others, "asked", False):
            return None
        self._found_by_others.asked = True  # other finders may ask all finders too
        try:
            specs = (finder.find_spec(fullname, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((spec for spec in specs if spec is not None), None)
        finally:
            self._found_by_others.asked = False
        if spec is not None and spec.loader is not None:
            spec.loader = _HookingLoader(spec.loader, hook)  # type: ignore[assignment]  # by its methods
        return spec


@dataclass(frozen=True, slots=True)
class _HookingLoader:
    """Executes a module with its own loader, which the module keeps, and then hooks it."""

    loader: Any
    hook: Hook

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        with contextlib.suppress(AttributeError):  # the user's own module of that name has no such clients
            self.hook(module)


def _hook_http_client(host: str, port: int) -> None:
    put = http.client.HTTPConnection.putrequest

    @functools.wraps(put)
    def putrequest(self: http.client.HTTPConnection, *args: Any, **options: Any) -> None:
        put(self, *args, **options)
        name = CURRENT.get()
        if name is not None and (self.host, self.port) == (host, port):
            self.putheader(HEADER, name)

    http.client.HTTPConnection.putrequest = putrequest  # type: ignore[method-assign]


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


def _hook_aiohttp(address: str, module: ModuleType) -> None:
    """Hook a private method, because sessions have no other place through which each request passes.

    Without it, requests over aiohttp belong to no rollout; tests/endpoint/test_environment.py notices.
    """
    session = module.ClientSession
    request = session._request

    @functools.wraps(request)
    def hooked(self: Any, method: str, url: Any, **options: Any) -> Any:
        """Return the coroutine of the request. Another one around it would cost all requests to models."""
        name = CURRENT.get()
        if name is not None and address in f"{self._base_url} {url}":
            options["headers"] = {**dict(options.get("headers") or {}), HEADER: name}
        return request(self, method, url, **options)

    session._request = hooked
