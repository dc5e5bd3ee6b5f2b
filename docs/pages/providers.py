"""docs/reference/providers.md, from the table of providers."""

from __future__ import annotations

from docs.pages import markdown
from docs.pages.markdown import code
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES, Service

HEAD = """\
# Providers

What the prefix of `model_path` means where `[model] base_url` is not given. With a `base_url` the name is sent as
written, and none of this holds.

`demo/arithmetic` is the embedded model: offline, without a key.

This page is made by `docs/generate.py`.
"""

LITELLM = """\
## Through LiteLLM

With the extra `pytest-osmosis[litellm]`. LiteLLM knows their addresses, and reads their keys from its own variables.
"""


def page() -> str:
    """The page as Markdown."""
    rows = [row(prefix, service) for prefix, service in SERVICES.items()]
    others = [f"- {code(prefix + '/')}" for prefix in LITELLM_PREFIXES]
    others.append("- `litellm/<provider>/<model>`: any other of its providers")
    return markdown.page([HEAD, markdown.table(("prefix", "address", "key", "client"), rows), LITELLM, others])


def row(prefix: str, service: Service) -> tuple[str, ...]:
    """One provider."""
    moved = f", or {code(service.url_env)}" if service.url_env is not None else ""
    key = code(service.api_key_env) if service.api_key_env is not None else "none"
    return code(f"{prefix}/"), code(service.base_url) + moved, key, code(service.client)
