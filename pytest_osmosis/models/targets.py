"""The model of a config, and how to reach it: `resolve(model_path, [model], environ) -> ModelTarget`.

Without a base_url the prefix of model_path names the provider. With one, the name is sent as written, slashes included.
A target contains the name of the key's environment variable and never the key, so it can be written and printed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct, structs

from pytest_osmosis.errors import ConfigError, Problem
from pytest_osmosis.models.providers import (
    LITELLM_PREFIXES,
    OPENAI_APIS,
    SERVICES,
    Api,
    Client,
    MaxTokensKey,
    Service,
    service_at,
)
from pytest_osmosis.text.chat_messages import RECORDED, SCRIPTED
from pytest_osmosis.text.names import suggestion

if TYPE_CHECKING:
    from pytest_osmosis.config.tables import ModelTable

Sticky = Literal["none", "row", "run"]

DEMO, DEMO_JUDGE = "demo/arithmetic", "demo/judge"
EMBEDDED = (DEMO, DEMO_JUDGE, SCRIPTED)
MESSAGE_SHARE = 16
REQUEST_PATHS = ("/chat/completions", "/completions", "/messages", "/responses")
CHAT_ONLY = (
    *("stop", "seed", "n", "frequency_penalty", "presence_penalty", "logit_bias", "logprobs", "prediction"),
    *("modalities", "audio", "functions", "function_call", "web_search_options"),
)
"""The keys of chat completions that OpenAI's Responses lack."""
SWITCH = 'set [model] api_client_type = "openai_chat_completions"'
KNOWN = ("demo", *SERVICES, *LITELLM_PREFIXES, "litellm")


class ModelTarget(Struct, frozen=True):
    """One model at one address.

    `provider` is a prefix of `providers`, "demo", "litellm", "recorded" if it is never asked, or "server" if the config
    has a base_url. `model` is the name as it is sent. `base_url` is None for the embedded model, and if LiteLLM knows
    the address. `api_key_env` names the variable that holds the key; with None no key is sent. `max_tokens_key` and
    `seed_key` are the server's names for the bound on an answer and for a seed; `seed_key` is None if it refuses seeds.
    `headers_from_state` are headers by name, and the keys of a rollout's state that hold their values.

    `endpoint` is the id in the registry of endpoints. If it has several servers, `replicas` are all of them, and the
    target itself describes the first one. `sticky` says which requests stay with one replica. `api` is that of the
    clients "openai" and "light".
    """

    provider: str
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = {}
    timeout_s: float = 120.0
    max_retries: int = 4
    max_response_mb: int = 64
    client: Client = "light"
    max_tokens_key: MaxTokensKey = "max_tokens"
    seed_key: str | None = "seed"
    headers_from_state: Mapping[str, str] = {}
    endpoint: str | None = None
    replicas: tuple[ModelTarget, ...] = ()
    sticky: Sticky = "none"
    api: Api = "chat_completions"

    @property
    def servers(self) -> tuple[ModelTarget, ...]:
        """The target of each server: the replicas, or else this one alone."""
        return self.replicas or (self,)

    @property
    def address(self) -> str | None:
        """The address of the server, or those of all replicas, for people."""
        return self.base_url if not self.replicas else ", ".join(each.base_url or "" for each in self.replicas)

    @property
    def address_key(self) -> str:
        """The key that sets the address, for people."""
        return "[model] base_url" if self.endpoint is None else "[[endpoint]] url (or [model] base_url)"

    @property
    def describe(self) -> str:
        """The model in words, with its address unless the name implies it.

        >>> ModelTarget("server", "Qwen/Qwen3-8B", "http://localhost:8000/v1").describe
        'Qwen/Qwen3-8B at http://localhost:8000/v1'
        """
        if self.provider == "demo":
            return f"demo/{self.model} (embedded)"
        if self.provider == RECORDED:
            maker = "" if self.model == RECORDED else f" of {self.model}"
            return f"recorded conversations{maker}, no model is asked"
        if self.endpoint is not None:
            at = f"{len(self.replicas)} replicas, {self.address}" if self.replicas else self.base_url
            named = f"{self.endpoint}: " if self.endpoint != self.model else ""
            return f"{named}{self.model} at {at}"
        address = f" at {self.base_url}" if self.base_url is not None else ""
        if self.client == "litellm":
            return f"{self.model}{address} through LiteLLM"
        if self.provider == "server":
            return f"{self.model}{address}"
        service = SERVICES[self.provider]
        if self.base_url != service.base_url:
            return f"{self.provider}/{self.model}{address} ({service.url_env})"
        return f"{self.provider}/{self.model}{address if service.api_key_env is None else ''}"

    @property
    def is_remote(self) -> bool:
        """True if requests leave the machine or at least the host, so that they can fail."""
        return self.provider not in ("demo", RECORDED)

    @property
    def max_message_bytes(self) -> int:
        """The bound on a message as JSON. A message is kept, sent on and written several times, a body only read."""
        return self.max_response_mb * 2**20 // MESSAGE_SHARE

    def seed_field(self, seed: int | None) -> dict[str, int]:
        """Return a seed under the server's name for it; empty if the server takes none."""
        return {} if seed is None or self.seed_key is None else {self.seed_key: seed}

    def to_json(self) -> dict[str, Any]:
        return structs.asdict(self) | {
            "headers": dict(self.headers),
            "headers_from_state": dict(self.headers_from_state),
            "replicas": [each.to_json() for each in self.replicas],
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> ModelTarget:
        """Return the target that `to_json` wrote."""
        return cls(**{**value, "replicas": tuple(map(cls.from_json, value.get("replicas", ())))})


def resolve(model_path: str, table: ModelTable, environ: Mapping[str, str], *, where: str) -> ModelTarget:
    """Return the target for a config's model_path and `[model]`.

    `missing_key` and `missing_extra` check if it can be used. Raises `ConfigError` at `where` for an unknown provider,
    an invalid address, and a client that does not speak the provider's API or may not have the address.
    """
    prefix, _, name = model_path.partition("/")
    if table.base_url is not None:
        check_url(table.base_url, "[model] base_url", where)
        return at_address(model_path, table, table.base_url, where)
    if model_path in EMBEDDED:
        return _target("demo", name, table, client="embedded")
    if name and prefix in SERVICES:
        return _at_service(prefix, name, table, environ, where)
    if name and prefix in LITELLM_PREFIXES:
        return _through_litellm(model_path, table, where)
    if prefix == "litellm" and "/" in name:
        return _through_litellm(name, table, where)
    raise ConfigError.at(where, f"[experiment] model_path: {_refusal(prefix, name)}")


def recorded(name: str) -> ModelTarget:
    """Return the target of recorded conversations, which is never asked. `name` is that of the model that made them."""
    return ModelTarget(RECORDED, name, client="embedded")


def missing_key(target: ModelTarget, environ: Mapping[str, str], *, where: str) -> Problem | None:
    """Return the problem with an unset or empty variable of the key, or None."""
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
    """Return the problem if the target needs LiteLLM, but it is not installed, or None."""
    import importlib.util

    if target.client != "litellm" or importlib.util.find_spec("litellm") is not None:
        return None
    return Problem(where, f"{target.describe}: LiteLLM is not installed; pip install 'pytest-osmosis[litellm]'")


def at_address(model: str, table: ModelTable, base_url: str, where: str) -> ModelTarget:
    """Return the target for a server that the config names. Only a key that the config names is sent.

    LiteLLM would send the keys of its own variables there. Raises `ConfigError` for it.
    """
    if table.client == "litellm":
        text = (
            '[model] client: "litellm" takes no base_url; leave out client for a server with OpenAI\'s API, write '
            'client = "anthropic" for one with Anthropic\'s, or leave out base_url for a provider that LiteLLM knows: '
            "LiteLLM's own variables, such as AZURE_API_BASE, may set its address"
        )
        raise ConfigError.at(where, text)
    client = _chosen(table, service_at(base_url) or Service(""))
    return _target("server", model, table, client=client, base_url=base_url, api_key_env=table.api_key_env)


def _chosen(table: ModelTable, service: Service) -> Client:
    """Return the client that the config chooses, or that speaks the API which it chooses, or else the service's own."""
    api = table.api_client_type
    if table.client == "auto" or (api is not None and api not in OPENAI_APIS):
        return service.client if api is None else service.client_of(api)
    return table.client


def _at_service(prefix: str, name: str, table: ModelTable, environ: Mapping[str, str], where: str) -> ModelTarget:
    service = SERVICES[prefix]
    client = _client_for(table, service.clients, f"{prefix}/{name}", where)
    base_url = _address(service, environ, where)
    litellm = client == "litellm"
    is_own = prefix == "openai" and base_url == service.base_url and not litellm
    leaves_address = litellm and service.url_env is None  # else LiteLLM would look into more variables
    return _target(
        prefix,
        f"{prefix}/{name}" if litellm else name,
        table,
        client=client,
        base_url=None if leaves_address else base_url,
        api_key_env=table.api_key_env or service.api_key_env,
        api="auto" if is_own else "chat_completions",
    )


def _through_litellm(model: str, table: ModelTable, where: str) -> ModelTarget:
    client = _client_for(table, ("litellm",), model, where)
    return _target("litellm", model, table, client=client, api_key_env=table.api_key_env)


def _client_for(table: ModelTable, clients: tuple[Client, ...], model: str, where: str) -> Client:
    """Return the chosen client, or the first of `clients` under "auto". Raises `ConfigError` for any other."""
    api = table.api_client_type
    if api is not None:
        client = _chosen(table, Service("", client=clients[0]))
        speaks = clients if "anthropic" in clients else (*clients, "completions", "tokens")
        if client not in speaks or clients == ("litellm",):
            text = f'[model] api_client_type: {model} has no API "{api}"; leave it out, or set base_url to a server'
            raise ConfigError.at(where, text)
        return client
    if table.client == "auto":
        return clients[0]
    if table.client not in clients:
        valid = ", ".join(f'"{client}"' for client in ("auto", *clients))
        text = f'[model] client: "{table.client}" does not speak the API of {model}; valid: {valid}'
        raise ConfigError.at(where, text)
    return table.client


def _target(
    provider: str,
    model: str,
    table: ModelTable,
    *,
    client: Client,
    base_url: str | None = None,
    api_key_env: str | None = None,
    api: Api = "chat_completions",
) -> ModelTarget:
    """Return a target. `api` is that of a config which does not choose one."""
    service = service_at(base_url or "") or (SERVICES["openai"] if provider == "openai" else Service(""))
    api = OPENAI_APIS.get(table.api_client_type or "", api)
    return ModelTarget(
        provider, model, base_url, api_key_env, table.headers, table.timeout_s, table.max_retries,
        table.max_response_mb, client, service.max_tokens_key, None if api == "responses" else service.seed_key,
        dict(table.headers_from_state), sticky=table.sticky, api=api,
    )  # fmt: skip


def chat_only(keys: Iterable[str]) -> list[str]:
    """Return the keys of a request that chat completions have, and OpenAI's Responses lack."""
    return [key for key in keys if key in CHAT_ONLY]


def asks_responses(api: Api, keys: Iterable[str]) -> bool:
    """Return True if requests with these keys go to OpenAI's Responses, for the `api` of their target."""
    return api == "responses" or (api == "auto" and not chat_only(keys))


def _address(service: Service, environ: Mapping[str, str], where: str) -> str:
    moved = environ.get(service.url_env, "").strip() if service.url_env is not None else ""
    if moved:
        check_url(moved, f"environment variable {service.url_env}", where)
    return moved or service.base_url


def check_url(url: str, name: str, where: str) -> None:
    text: str | None = None
    try:
        parts = urlsplit(url)
        host, _port = parts.hostname, parts.port
        if "@" in parts.netloc:  # the message does not contain the URL, because it may contain a password
            text = "must not contain a user name or password; name a key's variable in [model] api_key_env"
        elif parts.scheme not in ("http", "https") or not host:
            text = f'must be an http:// or https:// address, got "{url}"'
        elif parts.query or parts.fragment:  # it may contain a key too
            text = "must not contain a ? or #; name a key's variable in [model] api_key_env"
        else:
            added = next((path for path in REQUEST_PATHS if parts.path.rstrip("/").endswith(path)), None)
            text = added and f'must end before "{added}", which is added to it, got "{url}"'
    except ValueError as error:
        text = f"not an address ({error})"
    if text is not None:
        raise ConfigError.at(where, f'{name}: {text}; write it as in "http://localhost:8000/v1"')


def _refusal(prefix: str, name: str) -> str:
    if prefix in KNOWN:
        valid = {"demo": f"{DEMO}, {DEMO_JUDGE} and {SCRIPTED}", "litellm": "litellm/<provider>/<model>"}
        return f'"{prefix}/{name}" names no model (valid: {valid.get(prefix, f"{prefix}/<model>")})'
    direct, through = (", ".join(f"{each}/" for each in names) for names in (("demo", *SERVICES), LITELLM_PREFIXES))
    close = suggestion(prefix.lower(), KNOWN) if name else ""
    return (
        f'unknown provider "{prefix}"{close} (valid: {direct}; through LiteLLM: {through} '
        f"and litellm/<provider>/<model>; any name with [model] base_url)"
    )
