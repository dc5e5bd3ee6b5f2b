"""The rules by which the dashboard answers a request.

Any web page can send requests to loopback, and may even name a domain of its own that leads there (DNS rebinding); on a
machine with several users, each of them can. So the dashboard answers only to its own names, and gives data only to
its own page, which has a token. The token is printed in the fragment of an address, which no browser sends, and never
in a cookie: cookies are shared by all ports of a machine. A browser that is opened gets a key instead, which is good
for one request, because other users see the arguments of its process.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

OWN_HOSTS = ("127.0.0.1", "localhost", "[::1]")
METHOD = "GET"
API = "/api/"
TOKEN_PATH = "/api/token"
"""The path that gives the token for a key."""
_WITH_PORT = re.compile(r"(?P<host>\[[^\]]*\]|[^:]*)(?::[0-9]{1,5})?")
_FROM_HERE = ("none", "same-origin")
"""The values of Sec-Fetch-Site for an address that a user typed, and for requests of the dashboard's own page."""


class Refusal(NamedTuple):
    """An answer to a request that is refused: its HTTP status, and the reason in a sentence."""

    status: int
    text: str


class Headers(Protocol):
    """The headers of a request, which may repeat a name in any case."""

    def getall(self, key: str, default: Sequence[str], /) -> Sequence[str]: ...


class Access:
    """Admits requests that name a known host and, for data, come from the dashboard's own page with its token.

    `hosts` are further names of the machine, with or without a port. A key is good for one request, which asks for the
    token.
    """

    def __init__(self, token: str, hosts: Iterable[str] = ()) -> None:
        self.token = token
        self._keys: set[str] = set()
        self._hosts = {host.lower() for host in (*OWN_HOSTS, *hosts)}

    def new_key(self) -> str:
        """Return a key that is good for one request."""
        key = secrets.token_hex(16)
        self._keys.add(key)
        return key

    def refusal(self, method: str, path: str, headers: Headers) -> Refusal | None:
        """Return why a request is refused, None if it is admitted."""
        host = _only(headers, "Host")
        if host is None or not self._is_own(host):
            return Refusal(
                421,
                "this dashboard does not answer to that name: open the address that pytest-osmosis view printed, or "
                "start it with --allow-host=NAME",
            )
        if method != METHOD:
            return Refusal(405, f"a dashboard only answers {METHOD}")
        if not path.startswith(API):
            return None
        site, origin = _only(headers, "Sec-Fetch-Site", "none"), _only(headers, "Origin", "")
        if site not in _FROM_HERE or (origin != "" and not _is_origin(origin, host)):
            return Refusal(403, "only the dashboard's own page may ask for data")
        if not (self._takes_key(headers) if path == TOKEN_PATH else self._has(self.token, headers)):
            return Refusal(
                401,
                "the token is missing, or that of an earlier dashboard: open the address that pytest-osmosis view "
                "printed",
            )
        return None

    def _is_own(self, host: str) -> bool:
        """Return True for a name of the dashboard, with any port: a tunnel may have another one."""
        named = _WITH_PORT.fullmatch(host.lower())
        return named is not None and (named["host"] in self._hosts or host.lower() in self._hosts)

    def _takes_key(self, headers: Headers) -> bool:
        """Return True if a request has a key, which no further request may have."""
        used = {key for key in self._keys if self._has(key, headers)}
        self._keys -= used
        return bool(used)

    def _has(self, secret: str, headers: Headers) -> bool:
        given = (_only(headers, "Authorization") or "").encode("utf-8", "surrogateescape")
        return hmac.compare_digest(given, f"Bearer {secret}".encode())


def _is_origin(origin: str | None, host: str) -> bool:
    """Return True for the origin of a page of this host; a tunnel may add TLS."""
    return origin is not None and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _only(headers: Headers, name: str, default: str | None = None) -> str | None:
    """Return the value of a header, `default` if there is none, None if there are several."""
    values = headers.getall(name, ())
    return values[0] if len(values) == 1 else None if values else default
