"""Which model a config means and how it is reached: `resolve(model_path, [model], environ) -> ModelTarget`.

Without a base_url the prefix of model_path names the provider; with one, the name is sent as written, slashes
included. A target holds the name of the key's environment variable and never its value, so it may cross a
pipe, stand in a journal or be printed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ConfigError, Problem

Provider = Literal["demo", "openai", "server"]
MaxTokensKey = Literal["max_tokens", "max_completion_tokens"]

OPENAI_URL = "https://api.openai.com/v1"
OPENAI_HOST = "api.openai.com"
DEMO_MODELS = ("arithmetic",)
PROVIDERS = ("demo", "openai")
LATER_PROVIDERS = (
    "anthropic",
    "azure",
    "bedrock",
    "cerebras",
    "cohere",
    "deepseek",
    "fireworks_ai",
    "gemini",
    "groq",
    "huggingface",
    "litellm",
    "lm_studio",
    "mistral",
    "ollama",
    "openrouter",
    "perplexity",
    "sglang",
    "together_ai",
    "vertex_ai",
    "vllm",
    "xai",
)


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """One model at one place.

    `model` is the name as it is sent, `base_url` None for the embedded model alone. `api_key_env` names the
    variable that holds the key; None means that no key is sent. `max_tokens_key` is what the server calls the
    bound on an answer.
    """

    provider: Provider
    model: str
    base_url: str | None = None
    api_key_env: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 120.0
    max_retries: int = 4
    client: Literal["auto", "openai"] = "auto"
    max_tokens_key: MaxTokensKey = "max_tokens"

    @property
    def describe(self) -> str:
        """The model for a header line, with its address where the name alone does not say it.

        >>> ModelTarget("server", "Qwen/Qwen3-8B", "http://localhost:8000/v1").describe
        'Qwen/Qwen3-8B at http://localhost:8000/v1'
        """
        if self.provider == "demo":
            return f"demo/{self.model} (embedded)"
        if self.provider == "server":
            return f"{self.model} at {self.base_url}"
        moved = "" if self.base_url == OPENAI_URL else f" at {self.base_url} (OPENAI_BASE_URL)"
        return f"openai/{self.model}{moved}"

    def to_json(self) -> dict[str, Any]:
        """Every field, as plain JSON."""
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
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> ModelTarget:
        """The target that `to_json` wrote."""
        return cls(**data)


def resolve(model_path: str, table: ModelTable, environ: Mapping[str, str], *, where: str) -> ModelTarget:
    """The target that a config's model_path and `[model]` mean.

    Whether its key is set is another question: `missing_key`. Raises `ConfigError` at `where` for an unknown
    or not yet supported provider and for an address that is none.
    """
    if table.base_url is not None:
        _check_url(table.base_url, "[model] base_url", where)
        return _target("server", model_path, table, base_url=table.base_url, api_key_env=table.api_key_env)
    prefix, slash, name = model_path.partition("/")
    if prefix == "demo" and name in DEMO_MODELS:
        return _target("demo", name, table)
    if prefix == "openai" and name:
        return _target(
            "openai",
            name,
            table,
            base_url=_openai_url(environ, where),
            api_key_env=table.api_key_env or "OPENAI_API_KEY",
        )
    raise ConfigError([Problem(where, f"[experiment] model_path: {_refusal(prefix, slash, name)}")])


def missing_key(target: ModelTarget, environ: Mapping[str, str], *, where: str) -> Problem | None:
    """What to tell the user when the target wants a key and its variable is unset or empty, else None."""
    name = target.api_key_env
    if name is None or environ.get(name, "").strip():
        return None
    state = "is empty" if name in environ else "is not set"
    return Problem(
        where,
        f"{target.describe}: the environment variable {name}, which holds its key, {state}; "
        f"set it (export {name}=...), give a file with it (--osmosis-secrets-file=...), "
        f"or name another variable in [model] api_key_env",
    )


def _target(
    provider: Provider,
    model: str,
    table: ModelTable,
    *,
    base_url: str | None = None,
    api_key_env: str | None = None,
) -> ModelTarget:
    return ModelTarget(
        provider=provider,
        model=model,
        base_url=base_url,
        api_key_env=api_key_env,
        headers=table.headers,
        timeout_s=table.timeout_s,
        max_retries=table.max_retries,
        client=table.client,
        max_tokens_key="max_completion_tokens" if _is_openai(base_url) else "max_tokens",
    )


def _is_openai(base_url: str | None) -> bool:
    """Whether this is OpenAI's own service, regional hosts (eu.api.openai.com) included."""
    host = urlsplit(base_url or "").hostname or ""
    return host == OPENAI_HOST or host.endswith(f".{OPENAI_HOST}")


def _openai_url(environ: Mapping[str, str], where: str) -> str:
    moved = environ.get("OPENAI_BASE_URL", "").strip()
    if moved:
        _check_url(moved, "environment variable OPENAI_BASE_URL", where)
    return moved or OPENAI_URL


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
        return f"must not hold a user name or password; give a key by [model] api_key_env; {fix}"
    if parts.scheme not in ("http", "https") or not host:
        return f'must be an http:// or https:// address, got "{url}"; {fix}'
    return None


def _refusal(prefix: str, slash: str, name: str) -> str:
    """Why no target can be made of this model_path, and what would make one."""
    if slash and prefix in LATER_PROVIDERS:
        example = f' ("{name}")' if name else ""
        return (
            f'provider "{prefix}": not supported yet; set [model] base_url to its OpenAI-compatible address, '
            f"api_key_env to the variable that holds its key, and write the model's name as that server "
            f"knows it{example}"
        )
    if slash and prefix in PROVIDERS:
        models = ", ".join(f"demo/{model}" for model in DEMO_MODELS) if prefix == "demo" else "openai/<model>"
        hint = _did_you_mean(prefix, name)
        return f'"{prefix}/{name}" is no model of provider "{prefix}", which has {models}{hint}'
    what = f'unknown provider "{prefix}"' if slash else f'"{prefix}" names no provider'
    return (
        f"{what}; known: {', '.join(f'{known}/' for known in PROVIDERS)} "
        f"(not supported yet: {', '.join(f'{later}/' for later in LATER_PROVIDERS)}), "
        f"and any name with [model] base_url{_did_you_mean(prefix, name)}"
    )


def _did_you_mean(prefix: str, name: str) -> str:
    from difflib import get_close_matches

    if not name:
        guess = f"demo/{prefix}" if prefix in DEMO_MODELS else f"openai/{prefix}"
        return f'; did you mean "{guess}"?' if prefix not in PROVIDERS else ""
    providers = get_close_matches(prefix.lower(), (*PROVIDERS, *LATER_PROVIDERS), n=1)
    if providers == ["demo"]:
        models = get_close_matches(name.lower(), DEMO_MODELS, n=1)
        return f'; did you mean "demo/{models[0]}"?' if models else ""
    return f'; did you mean "{providers[0]}/{name}"?' if providers else ""
