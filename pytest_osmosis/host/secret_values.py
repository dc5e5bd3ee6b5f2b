"""The values that must not leave a host."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_osmosis.host.protocol import HostCode
from pytest_osmosis.models.providers import provider_secrets, secret_headers


def secrets_of(code: HostCode, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the values that must not leave a host, by name: of its secrets, of its models' headers, of all keys."""
    keys = [target["api_key_env"] for target in code.model_targets.values()]
    names = [*code.secrets, *filter(None, keys)]
    headers = [secret_headers(target["headers"]) for target in code.model_targets.values()]
    return {
        **{name: value for each in headers for name, value in each.items()},
        **provider_secrets(environ),
        **{name: environ[name] for name in names if name in environ},
    }
