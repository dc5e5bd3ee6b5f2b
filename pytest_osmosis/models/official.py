"""What the official clients have in common: they are generated from one template, and used here in one way.

A client contributes connections, proxies, headers and authentication. Its retries are off (`retry` has them), its
redirects are off (nothing is sent but to the configured address), and its parsing is not used: it takes an HTML page
for an answer and raises bare JSON errors.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TypeVar

import httpx2

from pytest_osmosis.models.failures import Failures

CONNECT_TIMEOUT_S = 10.0

Value = TypeVar("Value")
Other = TypeVar("Other")


def connections(max_in_flight: int) -> dict[str, Any]:
    """Arguments of the client's transport: as many connections as may be in flight, no redirects."""
    limits = httpx2.Limits(max_connections=max_in_flight, max_keepalive_connections=max_in_flight)
    return {"follow_redirects": False, "limits": limits}


async def post(
    client: Any,
    path: str,
    body: bytes,
    *,
    headers: Mapping[str, Any],
    timeout_s: float,
    status_error: type[Exception],
    failures: Failures,
) -> httpx2.Response:
    """The whole answer to one request, of a good status. Raises `ModelError` for everything else.

    `status_error` is the client's own exception for a bad status.
    """
    timeout = httpx2.Timeout(timeout_s, connect=min(timeout_s, CONNECT_TIMEOUT_S))
    options = {"headers": headers, "timeout": timeout}
    try:
        check_ascii(headers)
        response: httpx2.Response = await client.post(path, cast_to=httpx2.Response, content=body, options=options)
    except Exception as error:
        if not isinstance(error, status_error):
            raise failures.of_exception(error) from None
        bad: httpx2.Response = error.response  # type: ignore[attr-defined]
        raise failures.of_status(bad.status_code, bad.headers, bad.text, now=datetime.now(UTC)) from None
    return response


def check_ascii(headers: Mapping[str, Any]) -> None:
    """Raise `UnicodeError` for a header that HTTP cannot hold; some clients would send other bytes for it."""
    for value in headers.values():
        if isinstance(value, str):
            value.encode("ascii")


def ambient_headers(lines: str) -> list[str]:
    """The names of the headers that a client takes from a variable of its own, "Name: value" a line."""
    return [line.partition(":")[0].strip() for line in lines.split("\n") if ":" in line]


def merged(ours: Mapping[str, Value], given: Mapping[str, Other]) -> dict[str, Value | Other]:
    """Our headers and those that are given, which win whatever their case.

    >>> merged({"Content-Type": "a", "X": "b"}, {"content-type": "c"})
    {'X': 'b', 'content-type': 'c'}
    """
    names = {name.lower() for name in given}
    return {**{name: value for name, value in ours.items() if name.lower() not in names}, **given}
