"""Generate docs/reference/providers.md from the table of providers."""

from __future__ import annotations

from docs.pages import markdown
from docs.pages.markdown import code, item
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES, Service

HEAD = """\
# Providers

Without `[model] base_url`, the prefix of `model_path` selects the provider. With a `base_url`, the name is sent as
written and prefixes mean nothing.

`demo/arithmetic` and `demo/script` are embedded: offline, without a key. Each prefix is listed with its address, the
variable that holds the key, and the client, if that is not `light`:
"""

LITELLM = """\
## Through LiteLLM

These need the extra `pytest-osmosis[litellm]`. LiteLLM knows the addresses, and reads the keys from its own variables,
or uses a login that the provider's own tools have stored.
It takes no `base_url`, to which it would send such keys.
"""


def page() -> str:
    prefixes = ", ".join(code(f"{prefix}/") for prefix in LITELLM_PREFIXES)
    others = [f"The prefixes are {prefixes}, and `litellm/<provider>/<model>` for any other of its providers."]
    return markdown.page([HEAD, (provider(*each) for each in SERVICES.items()), LITELLM, others])


def provider(prefix: str, service: Service) -> str:
    """Return the item of a provider: its address, the variable with its key, its client if it is not the light one."""
    moved = f", or {code(service.url_env)}" if service.url_env is not None else ""
    key = "no key" if service.api_key_env is None else code(service.api_key_env)
    client = "" if service.client == "light" else f"; {code(service.client)}"
    return item(f"{prefix}/", f"{code(service.base_url)}{moved}; {key}{client}")
