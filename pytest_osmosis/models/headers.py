"""Headers that carry credentials: those of a config, and those that official clients read from a variable."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
PRINTABLE = string.punctuation.replace("%", "") + " "
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers that carry credentials, by header name; only `x` of `Bearer x`."""
    return {name: _SCHEME.sub("", value, count=1) for name, value in headers.items() if SECRET_HEADER.search(name)}


def state_headers(wanted: Mapping[str, str], state: Mapping[str, Any]) -> dict[str, str]:
    """Return headers with the values that a state holds under their keys; those without a value are left out.

    What a header cannot hold is written as in an address.

    >>> state_headers({"X-Row": "row", "X-City": "city", "X-No": "no"}, {"row": 7, "city": "Zürich"})
    {'X-Row': '7', 'X-City': 'Z%C3%BCrich'}
    """
    values = {name: state[key] for name, key in wanted.items() if state.get(key) is not None}
    return {name: quote(str(value), safe=PRINTABLE, errors="backslashreplace") for name, value in values.items()}


def headers_in(text: str) -> dict[str, str]:
    r"""Return the headers in the lines of a text.

    >>> headers_in("X-Api-Key: abc\nX-Trace: 1")
    {'X-Api-Key': 'abc', 'X-Trace': '1'}
    """
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}
