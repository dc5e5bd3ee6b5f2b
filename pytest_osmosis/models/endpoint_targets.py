"""The model of a config that may name an endpoint of the registry, or that an environment asks at Prime.

Without either, it is as `targets.resolve` says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.kinds import toml
from pytest_osmosis.config.tables import EXAMPLE_MODEL, ModelTable
from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.models.providers import OPENAI_APIS, SERVICES
from pytest_osmosis.models.targets import DEMO, DEMO_JUDGE, ModelTarget, at_address, check_url, resolve
from pytest_osmosis.text.names import closest, merged_headers

PRIME_URL, PRIME_KEY = "https://api.pinference.ai/api/v1", "PRIME_API_KEY"
SESSION: Mapping[str, str] = {"X-Session-ID": "example_id"}
"""The header from the state of a rollout that environments and endpoints get, unless the config sets it otherwise."""


def resolve_model(
    model_path: str,
    table: ModelTable,
    environ: Mapping[str, str],
    *,
    where: str,
    registry: Registry | None = None,
    of_environment: bool = False,
) -> ModelTarget:
    """Return the target for a config's model_path and `[model]`, where the registry may know the model.

    `of_environment` is true for the model of a verifiers environment. Raises `ConfigError` at `where`, as
    `targets.resolve` does.
    """
    if of_environment:
        table = replace(table, headers_from_state=merged_headers(SESSION, table.headers_from_state))
    if table.endpoint_id is not None or (registry is not None and model_path in registry.endpoints):
        return _at_endpoint(table.endpoint_id or model_path, table, registry, where)
    is_typo = registry is not None and "/" not in model_path and closest(model_path, registry.endpoints) is not None
    if of_environment and not is_typo and _is_for_prime(model_path, table, environ):
        return at_address(model_path, replace(table, api_key_env=PRIME_KEY), PRIME_URL, where)
    try:
        return resolve(model_path, table, environ, where=where)
    except ConfigError as error:
        if registry is None or "/" in model_path or table.base_url is not None:
            raise
        known = f'[experiment] model_path: "{model_path}" names neither an endpoint nor a provider'
        others = f"; a provider's model is written as in {EXAMPLE_MODEL}"
        text = f"{known}{registry.unknown(model_path)}{others}"
        raise ConfigError([Problem(each.where, text) for each in error.problems]) from None


def _is_for_prime(model_path: str, table: ModelTable, environ: Mapping[str, str]) -> bool:
    """Return True if the key of Prime says where an environment's model is, because nothing in the config does."""
    service = SERVICES.get(model_path.partition("/")[0])
    is_local = service is not None and service.api_key_env is None
    says_nothing = table.base_url is None and table.client == "auto" and table.api_key_env in (None, PRIME_KEY)
    is_ours = model_path in (DEMO, DEMO_JUDGE) or model_path.startswith("litellm/") or is_local
    return says_nothing and not is_ours and bool(environ.get(PRIME_KEY, "").strip())


def is_at_prime(target: ModelTarget) -> bool:
    """Return True if requests go to Prime, with its key."""
    return target.base_url == PRIME_URL and target.api_key_env == PRIME_KEY


def _at_endpoint(endpoint_id: str, table: ModelTable, registry: Registry | None, where: str) -> ModelTarget:
    """Return the target of an endpoint. What the config sets itself counts more than the registry's entry."""
    if registry is None:
        text = f"[model] endpoint_id: there is no registry with {toml(endpoint_id)}; write configs/endpoints.toml"
        raise ConfigError([Problem(where, text)])
    entries = registry.endpoints.get(endpoint_id)
    if entries is None:
        text = f"[model] endpoint_id: unknown endpoint {toml(endpoint_id)}{registry.unknown(endpoint_id)}"
        raise ConfigError([Problem(where, text)])
    table = replace(table, headers_from_state=merged_headers(SESSION, table.headers_from_state))
    if table.base_url is not None:
        check_url(table.base_url, "[model] base_url", where)
        entries = entries[:1]
    servers = [_server(entry, table, where) for entry in entries]
    return replace(servers[0], replicas=tuple(servers)) if len(servers) > 1 else servers[0]


def _server(entry: RegisteredEndpoint, table: ModelTable, where: str) -> ModelTarget:
    """Return the target of one server of an endpoint."""
    speaks = table.client == "auto" or (table.client in ("openai", "light") and entry.api_client_type in OPENAI_APIS)
    table = replace(
        table,
        api_key_env=table.api_key_env or entry.key,
        api_client_type=table.api_client_type or (entry.api_client_type if speaks else None),
        headers=merged_headers(entry.headers, table.headers),
    )
    check_url(entry.url, f"[[endpoint]] {toml(entry.endpoint_id)} url", entry.where)
    return replace(at_address(entry.model, table, table.base_url or entry.url, where), endpoint=entry.endpoint_id)
