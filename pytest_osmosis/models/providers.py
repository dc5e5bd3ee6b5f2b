"""The providers of models, as data: address, key variable and peculiarities for each prefix of a model_path.

The addresses are the public OpenAI-compatible ones that each provider documents, or the default address of a local
server. The peculiarities apply to the service at that host, also if a config sets the address.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterable, Mapping
from typing import Any, Literal
from urllib.parse import quote, unquote, urlsplit

from msgspec import Struct

SECRET_HEADER = re.compile(r"auth|key|token|secret|cookie|password", re.IGNORECASE)
PRINTABLE = string.punctuation.replace("%", "") + " "
_SCHEME = re.compile(r"(?:bearer|basic|token)\s+", re.IGNORECASE)


def secret_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the values of headers that carry credentials, by header name; only `x` of `Bearer x`."""
    return {name: _SCHEME.sub("", value, count=1) for name, value in headers.items() if SECRET_HEADER.search(name)}


def state_headers(wanted: Mapping[str, str], state: Mapping[str, Any]) -> dict[str, str]:
    """Return headers with the values that a state holds under their keys; those without a value are left out.

    What a header cannot hold is written as in an address.

    >>> state_headers({"X-Row": "row", "X-City": "city", "X-No": "no"}, {"row": 7, "city": "Zürich"})
    {'X-Row': '7', 'X-City': 'Z%C3%BCrich'}
    """
    values = {name: state[key] for name, key in wanted.items() if state.get(key) is not None}
    return {name: quote(str(value), safe=PRINTABLE, errors="backslashreplace") for name, value in values.items()}


def headers_in(text: str) -> dict[str, str]:
    r"""Return the headers in the lines of a text.

    >>> headers_in("X-Api-Key: abc\nX-Trace: 1")
    {'X-Api-Key': 'abc', 'X-Trace': '1'}
    """
    pairs = (line.partition(":") for line in text.splitlines())
    return {name.strip(): value.strip() for name, _, value in pairs if value.strip()}


Client = Literal["embedded", "openai", "anthropic", "light", "litellm", "completions", "tokens"]
MaxTokensKey = Literal["max_tokens", "max_completion_tokens"]
Api = Literal["chat_completions", "responses", "auto"]
"""The API that the clients "openai" and "light" ask: "auto" is Responses, unless a request has keys that it lacks."""


class Service(Struct, frozen=True):
    """One provider. `api_key_env` is None for a server on this machine, which needs no key.

    `url_env` names the variable that replaces its address. `client` is its client under `client = "auto"`. `seed_key`
    is the name of the seed in a request, None if the service refuses seeds.
    """

    base_url: str
    api_key_env: str | None = None
    url_env: str | None = None
    client: Client = "light"
    max_tokens_key: MaxTokensKey = "max_tokens"
    seed_key: str | None = "seed"

    @property
    def clients(self) -> tuple[Client, ...]:
        """The clients that speak the service's API, the default first."""
        others: tuple[Client, ...] = ("anthropic",) if self.client == "anthropic" else ("openai", "light")
        return (self.client, *(each for each in others if each != self.client), "litellm")

    def client_of(self, api: str) -> Client:
        """Return the client that speaks an API, by its name in `[model] api_client_type`."""
        if api in OPENAI_APIS:
            return self.client if self.client in ("openai", "light") else "light"
        return OTHER_APIS[api]


OPENAI_APIS: Mapping[str, Api] = {"openai_chat_completions": "chat_completions", "openai_responses": "responses"}
"""The APIs that the clients "openai" and "light" speak."""
OTHER_APIS: Mapping[str, Client] = {
    "anthropic_messages": "anthropic",
    "openai_completions": "completions",
    "openai_chat_completions_token": "tokens",
}
"""The client of each other API."""

SERVICES: Mapping[str, Service] = {
    "openai": Service(
        "https://api.openai.com/v1",
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        client="openai",
        max_tokens_key="max_completion_tokens",
    ),
    "anthropic": Service(
        "https://api.anthropic.com", "ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", client="anthropic", seed_key=None
    ),
    "cerebras": Service("https://api.cerebras.ai/v1", "CEREBRAS_API_KEY"),
    "deepinfra": Service("https://api.deepinfra.com/v1/openai", "DEEPINFRA_API_KEY"),
    "deepseek": Service("https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
    "fireworks_ai": Service("https://api.fireworks.ai/inference/v1", "FIREWORKS_API_KEY"),
    "gemini": Service("https://generativelanguage.googleapis.com/v1beta/openai", "GEMINI_API_KEY"),
    "groq": Service("https://api.groq.com/openai/v1", "GROQ_API_KEY"),
    "huggingface": Service("https://router.huggingface.co/v1", "HF_TOKEN"),
    "lm_studio": Service("http://localhost:1234/v1"),
    # Refuses requests with keys that it does not know, such as "seed".
    "mistral": Service("https://api.mistral.ai/v1", "MISTRAL_API_KEY", seed_key="random_seed"),
    "moonshot": Service("https://api.moonshot.ai/v1", "MOONSHOT_API_KEY"),
    "nvidia_nim": Service("https://integrate.api.nvidia.com/v1", "NVIDIA_API_KEY"),
    "ollama": Service("http://localhost:11434/v1"),
    "openrouter": Service("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "perplexity": Service("https://api.perplexity.ai", "PERPLEXITY_API_KEY"),
    "sambanova": Service("https://api.sambanova.ai/v1", "SAMBANOVA_API_KEY"),
    "sglang": Service("http://localhost:30000/v1"),
    "together_ai": Service("https://api.together.ai/v1", "TOGETHER_API_KEY"),
    "vllm": Service("http://localhost:8000/v1"),
    "xai": Service("https://api.x.ai/v1", "XAI_API_KEY"),
}


LITELLM_PREFIXES = (
    *("azure", "azure_ai", "bedrock", "cloudflare", "cohere", "databricks", "github", "replicate", "sagemaker"),
    *("snowflake", "vertex_ai", "watsonx"),
)
"""Providers with an API or a login of their own. LiteLLM reaches them, and reads their keys from its own variables."""

OTHER_KEYS = (
    *("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_BEARER_TOKEN_BEDROCK", "AZURE_AD_TOKEN"),
    *("AZURE_CLIENT_SECRET", "AZURE_PASSWORD", "DATABRICKS_CLIENT_SECRET", "DATABRICKS_TOKEN", "OPENAI_ADMIN_KEY"),
    *("SNOWFLAKE_JWT", "VERTEXAI_CREDENTIALS", "WATSONX_TOKEN", "WATSONX_ZENAPIKEY"),
)
"""Further variables with secrets that the official clients and LiteLLM read; `KEY_NAME` has all others."""
CUSTOM_HEADERS = "_CUSTOM_HEADERS"
KEY_NAME = re.compile(rf"(API_?KEY|API_TOKEN|AUTH_TOKEN)$|^(OPENAI|ANTHROPIC){CUSTOM_HEADERS}$")
"""The names of keys of the many other providers that LiteLLM knows."""


def key_variables(environ: Iterable[str]) -> list[str]:
    """Return the variables of `environ` whose values may be keys of providers. They are secrets in every eval.

    >>> key_variables(["HOME", "GROQ_API_KEY", "AZURE_AD_TOKEN", "AZURE_API_BASE", "SOME_PROVIDER_API_KEY"])
    ['GROQ_API_KEY', 'AZURE_AD_TOKEN', 'SOME_PROVIDER_API_KEY']
    """
    known = {*OTHER_KEYS, *(service.api_key_env for service in SERVICES.values())}
    return [name for name in environ if name in known or KEY_NAME.search(name)]


def provider_secrets(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the keys of all providers in an environment, and what their headers and addresses hold, by name."""
    variables = [each.url_env for each in SERVICES.values() if each.url_env is not None]
    passwords = {f"password in {name}": password_in(environ.get(name, "")) for name in variables}
    keys = {name: environ[name] for name in sorted(key_variables(environ))}
    headers = [secret_headers(headers_in(value)) for name, value in keys.items() if name.endswith(CUSTOM_HEADERS)]
    inner = {name: value for found in headers for name, value in found.items()}
    return {name: value for name, value in {**keys, **passwords, **inner}.items() if value}


def password_in(address: str) -> str:
    """Return the password in an address, "" without one."""
    try:
        return unquote(urlsplit(address).password or "")
    except ValueError:
        return ""


def service_at(base_url: str) -> Service | None:
    """Return the service at this host or at one of its regional hosts (eu.api.openai.com), or None."""
    host = urlsplit(base_url).hostname or ""
    for service in SERVICES.values():
        own = urlsplit(service.base_url).hostname
        if service.api_key_env is not None and (host == own or host.endswith(f".{own}")):
            return service
    return None
