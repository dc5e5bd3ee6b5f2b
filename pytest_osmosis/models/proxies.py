"""The proxies that the environment sets: HTTP_PROXY, HTTPS_PROXY, ALL_PROXY, unless NO_PROXY exempts the address."""

from __future__ import annotations

import os
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that sets it, as it is spelt; "" if the system's settings do."""

    url: str
    variable: str = ""

    def __str__(self) -> str:
        """Return the proxy for people, without its password.

        >>> print(Proxy("http://me:secret@proxy:3128", "HTTPS_PROXY"))
        the proxy http://proxy:3128 (HTTPS_PROXY)
        """
        scheme, _, rest = self.url.partition("://")
        return f"the proxy {scheme}://{rest.rpartition('@')[2]} ({self.variable or 'of the system'})"


def proxy_of(url: str) -> Proxy | None:
    """Return the proxy for this address, or None."""
    parts = urlsplit(url)
    proxies = getproxies()
    name = parts.scheme if proxies.get(parts.scheme) else "all"
    proxy = proxies.get(name)
    if not proxy or proxy_bypass(parts.netloc):
        return None
    variable = next((each for each in os.environ if each.lower() == f"{name}_proxy" and os.environ[each] == proxy), "")
    return Proxy(proxy if "://" in proxy else f"http://{proxy}", variable)
