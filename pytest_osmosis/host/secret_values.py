"""The values that must not leave a host."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from pytest_osmosis.host.protocol import Setup
from pytest_osmosis.models.providers import key_variables

SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers that carry credentials, by header name; only `x` of `Bearer x`."""
    return {
        name: value.split(" ", 1)[1] if value.lower().startswith(("bearer ", "basic ")) else value
        for name, value in headers.items()
        if SECRET_HEADER.search(name)
    }


def secrets_of(setup: Setup, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values that must not leave a host, by name: of its secrets, of its models' headers, of all keys."""
    keys = [target["api_key_env"] for target in setup.targets.values()]
    names = [*key_variables(environ), *setup.secrets, *filter(None, keys)]
    headers = [secret_headers(target["headers"]) for target in setup.targets.values()]
    return {**{name: value for each in headers for name, value in each.items()}, **_values(names, environ)}


def _values(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    return {name: environ[name] for name in names if name in environ}
