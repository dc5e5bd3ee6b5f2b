"""The variables from which clients and frameworks read the address of a model, pointed to the endpoint."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pytest_osmosis.endpoint.rollouts import Address

REMOVED = ("ANTHROPIC_AUTH_TOKEN",)
"""Variables of keys that clients would send in place of the endpoint's."""
NO_TRACES = {"OPENAI_AGENTS_DISABLE_TRACING": "1"}
"""OpenAI Agents SDK sends each conversation to OpenAI if there is a key, even if it is the endpoint's."""
PROXIES = ("HTTP_PROXY", "ALL_PROXY")


def variables(address: Address) -> dict[str, str | None]:
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


def direct(host: str, environ: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that keep requests to `host` from a proxy; none are needed if no proxy is set."""
    if not any(environ.get(name) or environ.get(name.lower()) for name in PROXIES):
        return {}
    before = environ.get("no_proxy") or environ.get("NO_PROXY") or ""
    if before.strip() == "*" or host in [each.strip() for each in before.split(",")]:
        return {}
    names = ",".join(filter(None, [before, host]))
    return {"no_proxy": names, "NO_PROXY": names}


def apply(changes: Mapping[str, str | None]) -> dict[str, str | None]:
    """Change variables of this process, and return the changes that undo it."""
    before = {name: os.environ.get(name) for name in changes}
    for name, value in changes.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    return before


@contextmanager
def applied(changes: Mapping[str, str | None]) -> Iterator[None]:
    """A context with these changes."""
    before = apply(changes)
    try:
        yield
    finally:
        apply(before)
