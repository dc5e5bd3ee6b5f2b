"""The official openai and anthropic clients, which are generated from one template and used here in one way.

A client contributes connections, proxies, headers and authentication. Its retries are off (`retry` has them), and so
are redirects (requests go to the configured address only). Its parsing is not used, because it takes an HTML page for
an answer and raises bare JSON errors.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

from pytest_osmosis.models.failures import Failures
from pytest_osmosis.models.targets import ModelTarget

CONNECT_TIMEOUT_S = 10.0

Value = TypeVar("Value")
Other = TypeVar("Other")


class Transport:
    """A client's aiohttp transport, of class `kind`. It is built on httpx or httpx2, depending on the client's version.

    LiteLLM does not work with openai clients that use httpx2.
    """

    def __init__(self, kind: type, status_error: type[Exception], failures: Failures) -> None:
        self._kind = kind
        module = next(base.__module__ for base in kind.__mro__ if base.__module__ in ("httpx", "httpx2"))
        self._http: Any = importlib.import_module(module)
        self._status_error = status_error
        self._failures = failures

    def connections(self, max_in_flight: int) -> Any:
        """Return the client's `http_client`, with `max_in_flight` connections and without redirects."""
        limits = self._http.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight)
        return self._kind(follow_redirects=False, limits=limits)

    async def post(self, client: Any, path: str, body: bytes, headers: Mapping[str, Any]) -> tuple[int, bytes]:
        """Return status and body of a 2xx answer to one request. Raises `ModelError` for everything else."""
        options = {"headers": headers, "timeout": self._http.Timeout(None, connect=CONNECT_TIMEOUT_S)}
        try:
            check_ascii(headers)
            response = await client.post(path, cast_to=self._http.Response, content=body, options=options)
        except self._status_error as error:
            bad: Any = error.response  # type: ignore[attr-defined]
            raise self._failures.of_status(bad.status_code, bad.headers, bad.text, now=datetime.now(UTC)) from None
        except Exception as error:
            raise self._failures.of_exception(error) from None
        return response.status_code, response.content


def check_ascii(headers: Mapping[str, Any]) -> None:
    """Raise `UnicodeError` for a header that is not ASCII; some clients would send other bytes for it."""
    for value in headers.values():
        if isinstance(value, str):
            value.encode("ascii")


def added_headers(target: ModelTarget, provider: str, key: Mapping[str, Value], omit: Other) -> dict[str, Any]:
    """Return the headers to add to the client's own: `key`, and the config's, which take precedence.

    A client takes more headers from its variable, one "Name: value" per line. Only its own `provider` gets those.
    """
    lines = os.environ.get(f"{provider.upper()}_CUSTOM_HEADERS", "").split("\n") if target.provider != provider else []
    omitted = {line.partition(":")[0].strip(): omit for line in lines if ":" in line}
    return merged({**omitted, **key, "Content-Type": "application/json"}, target.headers)


def merged(ours: Mapping[str, Value], others: Mapping[str, Other]) -> dict[str, Value | Other]:
    """Merge headers. Those in `others` replace ours with the same name in any case, and get our spelling.

    >>> merged({"Content-Type": "a", "X": "b"}, {"content-type": "c", "Y": "d"})
    {'Content-Type': 'c', 'X': 'b', 'Y': 'd'}
    """
    spelling = {name.lower(): name for name in ours}
    return {**ours, **{spelling.get(name.lower(), name): value for name, value in others.items()}}
