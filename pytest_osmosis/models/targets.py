"""The model of a config, and how to reach it: `resolve(model_path, [model], environ) -> ModelTarget`.

Without a base_url the prefix of model_path names the provider. With one, the name is sent as written, slashes included.
A target holds the name of the key's environment variable and never its value, so it may cross a pipe, be written to a
journal or be printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES, Client, MaxTokensKey, Service, service_at

if TYPE_CHECKING:
    from pytest_osmosis.config.tables import ModelTable

DEMO_MODELS = ("arithmetic",)
KNOWN = ("demo", *SERVICES, *LITELLM_PREFIXES, "litellm")
SERVER_CLIENTS: tuple[Client, ...] = ("light", "openai", "anthropic", "litellm")
"""The clients for a server that a base_url names, the default first."""


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """One model at one address.

    `provider` is a prefix of `providers`, "demo", "litellm", or "server" if the config has a base_url. `model` is the
    name as it is sent. `base_url` is None for the embedded model, and if LiteLLM knows the address. `api_key_env` names
    the variable that holds the key; with None no key is sent. `max_tokens_key` and `seed_key` are the server's names
    for the bound on an answer and for a seed; `seed_key` is None if it refuses seeds.
    """

    provider: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    max_retries: int = 4
    client: Client = "light"
    max_tokens_key: MaxTokensKey = "max_tokens"
    seed_key: str | None = "seed"

    @property
    def describe(self) -> str:
        """The model for a header line, with its address unless the name implies it.

        >>> ModelTarget("server", "Qwen/Qwen3-8B", "http://localhost:8000/v1").describe
        'Qwen/Qwen3-8B at http://localhost:8000/v1'
        """
        if self.provider == "demo":
            return f"demo/{self.model} (embedded)"
        address = f" at {self.base_url}" if self.base_url is not None else ""
        if self.client == "litellm":
            return f"{self.model}{address} through LiteLLM"
        if self.provider == "server":
            return f"{self.model}{address}"
        service = SERVICES[self.provider]
        if self.base_url != service.base_url:
            return f"{self.provider}/{self.model}{address} ({service.url_env})"
        return f"{self.provider}/{self.model}{address if service.api_key_env is None else ''}"

    def to_json(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "model": self.model,
            "base_url": self.base_url,
            "api_key_env": self.api_key_env,
            "headers": dict(self.headers),
            "timeout_s": self.timeout_s,
            "max_retries": self.max_retries,
            "client": self.client,
            "max_tokens_key": self.max_tokens_key,
            "seed_key": self.seed_key,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelTarget:
        return cls(**data)


def resolve(model_path: str, table: ModelTable, environ: Mapping[str, str], *, where: str) -> ModelTarget:
    """Return the target for a config's model_path and `[model]`.

    `missing_key` and `missing_extra` check whether it can be used. Raises `ConfigError` at `where` for an unknown
    provider, an invalid address, and a client that does not speak the provider's API.
    """
    prefix, slash, name = model_path.partition("/")
    if table.base_url is not None:
        _check_url(table.base_url, "[model] base_url", where)
        return _at_address(model_path, table, table.base_url)
    if prefix == "demo" and name in DEMO_MODELS:
        return _target("demo", name, table, client="embedded")
    if name and prefix in SERVICES:
        return _at_service(prefix, name, table, environ, where)
    if name and prefix in LITELLM_PREFIXES:
        return _through_litellm(model_path, table, where)
    if prefix == "litellm" and "/" in name:
        return _through_litellm(name, table, where)
    raise ConfigError([Problem(where, f"[experiment] model_path: {_refusal(prefix, slash, name)}")])


def missing_key(target: ModelTarget, environ: Mapping[str, str], *, where: str) -> Problem | None:
    """Return the problem if the target needs a key and its variable is unset or empty, else None."""
    name = target.api_key_env
    if name is None or environ.get(name, "").strip():
        return None
    state = "is empty" if name in environ else "is not set"
    return Problem(
        where,
        f"{target.describe}: its key variable {name} {state}; "
        f"set it (export {name}=...), pass a file that holds it (--osmosis-secrets-file=...), "
        f"or name another variable in [model] api_key_env",
    )


def missing_extra(target: ModelTarget, *, where: str) -> Problem | None:
    """Return the problem if the target needs LiteLLM and it is not installed, else None."""
    import importlib.util

    if target.client != "litellm" or importlib.util.find_spec("litellm") is not None:
        return None
    return Problem(where, f"{target.describe}: LiteLLM is not installed; pip install 'pytest-osmosis[litellm]'")


def _at_address(model: str, table: ModelTable, base_url: str) -> ModelTarget:
    """Return the target for a server that the config names. Only a key that the config names is sent."""
    service = service_at(base_url)
    client = service.client if service is not None else SERVER_CLIENTS[0]
    return _target(
        "server",
        model,
        table,
        client=client if table.client == "auto" else table.client,
        base_url=base_url,
        api_key_env=table.api_key_env,
    )


def _at_service(prefix: str, name: str, table: ModelTable, environ: Mapping[str, str], where: str) -> ModelTarget:
    service = SERVICES[prefix]
    client = _client_for(table, service.clients, f"{prefix}/{name}", where)
    base_url = _address(service, environ, where)
    litellm = client == "litellm"
    return _target(
        prefix,
        f"{prefix}/{name}" if litellm else name,
        table,
        client=client,
        base_url=None if litellm and base_url == service.base_url else base_url,
        api_key_env=table.api_key_env or service.api_key_env,
    )


def _through_litellm(model: str, table: ModelTable, where: str) -> ModelTarget:
    client = _client_for(table, ("litellm",), model, where)
    return _target("litellm", model, table, client=client, api_key_env=table.api_key_env)


def _client_for(table: ModelTable, clients: tuple[Client, ...], model: str, where: str) -> Client:
    """Return the chosen client, or the first of `clients` under "auto". Raises `ConfigError` for any other."""
    if table.client == "auto":
        return clients[0]
    if table.client not in clients:
        valid = ", ".join(f'"{client}"' for client in ("auto", *clients))
        text = f'[model] client: "{table.client}" does not speak the API of {model}; valid: {valid}'
        raise ConfigError([Problem(where, text)])
    return table.client


def _target(
    provider: str,
    model: str,
    table: ModelTable,
    *,
    client: Client,
    base_url: str | None = None,
    api_key_env: str | None = None,
) -> ModelTarget:
    service = service_at(base_url) if base_url is not None else None
    service = service or Service(base_url or "")
    return ModelTarget(
        provider=provider,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        headers=table.headers,
        timeout_s=table.timeout_s,
        max_retries=table.max_retries,
        client=client,
        max_tokens_key=service.max_tokens_key,
        seed_key=service.seed_key,
    )


def _address(service: Service, environ: Mapping[str, str], where: str) -> str:
    """Return the address in the service's variable, if set, else the service's own."""
    moved = environ.get(service.url_env, "").strip() if service.url_env is not None else ""
    if moved:
        _check_url(moved, f"environment variable {service.url_env}", where)
    return moved or service.base_url


def _check_url(url: str, name: str, where: str) -> None:
    problem = _url_problem(url)
    if problem is not None:
        raise ConfigError([Problem(where, f"{name}: {problem}")])


def _url_problem(url: str) -> str | None:
    fix = 'write it as in "http://localhost:8000/v1"'
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
    except ValueError as error:
        return f"not an address ({error}); {fix}"
    if "@" in parts.netloc:  # not quoted: it may hold a password
        return f"must not hold a user name or password; name a key's variable in [model] api_key_env; {fix}"
    if parts.scheme not in ("http", "https") or not host:
        return f'must be an http:// or https:// address, got "{url}"; {fix}'
    return None


def _refusal(prefix: str, slash: str, name: str) -> str:
    """Return why a model_path names no target, and what would."""
    if slash and prefix in KNOWN:
        hint = _did_you_mean(prefix, name)
        return f'provider "{prefix}" has no model "{prefix}/{name}"; it has {_models_of(prefix)}{hint}'
    what = f'unknown provider "{prefix}"' if slash else f'"{prefix}" names no provider'
    return (
        f"{what}; known: {_slashed(('demo', *SERVICES))}; through LiteLLM: {_slashed(LITELLM_PREFIXES)} and "
        f"litellm/<provider>/<model>; and any name with [model] base_url{_did_you_mean(prefix, name)}"
    )


def _models_of(prefix: str) -> str:
    if prefix == "demo":
        return ", ".join(f"demo/{model}" for model in DEMO_MODELS)
    return "litellm/<provider>/<model>" if prefix == "litellm" else f"{prefix}/<model>"


def _slashed(prefixes: Iterable[str]) -> str:
    return ", ".join(f"{prefix}/" for prefix in prefixes)


def _did_you_mean(prefix: str, name: str) -> str:
    from difflib import get_close_matches

    if not name:
        guess = f"demo/{prefix}" if prefix in DEMO_MODELS else f"openai/{prefix}"
        return f'; did you mean "{guess}"?' if prefix not in KNOWN else ""
    providers = get_close_matches(prefix.lower(), KNOWN, n=1)
    if providers == ["demo"]:
        models = get_close_matches(name.lower(), DEMO_MODELS, n=1)
        return f'; did you mean "demo/{models[0]}"?' if models else ""
    return f'; did you mean "{providers[0]}/{name}"?' if providers and providers[0] != prefix else ""
