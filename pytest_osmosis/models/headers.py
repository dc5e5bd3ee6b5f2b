"""Headers that carry credentials: those of a config, and those that official clients read from a variable."""

from __future__ import annotations

import re
from collections.abc import Mapping

SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers that carry credentials, by header name; only `x` of `Bearer x`."""
    return {name: _SCHEME.sub("", value, count=1) for name, value in headers.items() if SECRET_HEADER.search(name)}


def headers_in(text: str) -> dict[str, str]:
    r"""Return the headers in the lines of a text.

    >>> headers_in("X-Api-Key: abc\nX-Trace: 1")
    {'X-Api-Key': 'abc', 'X-Trace': '1'}
    """
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}
