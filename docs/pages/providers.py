"""Generate docs/reference/providers.md from the table of providers."""

from __future__ import annotations

from docs.pages import markdown
from docs.pages.markdown import code
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES, Service

HEAD = """\
# Providers

Without `[model] base_url`, the prefix of `model_path` selects the provider. With a `base_url`, the name is sent as
written and prefixes mean nothing.

`demo/arithmetic` is the embedded model: offline, without a key.
"""

LITELLM = """\
## Through LiteLLM

These need the extra `pytest-osmosis[litellm]`. LiteLLM knows the addresses, and reads the keys from its own variables,
or uses a login that the provider's own tools have stored.
It takes no `base_url`, to which it would send such keys.
"""


def page() -> str:
    rows = [row(prefix, service) for prefix, service in SERVICES.items()]
    prefixes = ", ".join(code(f"{prefix}/") for prefix in LITELLM_PREFIXES)
    others = [f"The prefixes are {prefixes}, and `litellm/<provider>/<model>` for any other of its providers."]
    return markdown.page([HEAD, markdown.table(("prefix", "address", "key", "client"), rows), LITELLM, others])


def row(prefix: str, service: Service) -> tuple[str, ...]:
    """Return the row of a provider."""
    moved = f", or {code(service.url_env)}" if service.url_env is not None else ""
    key = code(service.api_key_env) if service.api_key_env is not None else "none"
    return code(f"{prefix}/"), code(service.base_url) + moved, key, code(service.client)
