"""The target of a model that may be an endpoint of the registry, and of an environment's model at Prime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.evals.eval_models import resolve_model
from pytest_osmosis.models.targets import ModelTarget
from tests.raised import problems_of

A = RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://a.example/v1", "A_KEY", None, {"X-Team": "a", "X-Of": "a"})
B = RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://b.example/v1", "B_KEY", "openai_completions", {})
CLAUDE = RegisteredEndpoint("claude", "claude-5", "https://api.anthropic.com", "ANTHROPIC_API_KEY")
REGISTRY = Registry("configs/endpoints.toml", {"qwen": (A, B), "claude": (CLAUDE,)})


def target(name: str, *, environ: Mapping[str, str] | None = None, env: bool = False, **table: Any) -> ModelTarget:
    return resolve_model(
        name, ModelTable(**table), environ or {}, where="x.toml", registry=REGISTRY, of_environment=env
    )


def problem(name: str, registry: Registry | None = REGISTRY, **table: Any) -> str:
    (found,) = problems_of(ConfigError, resolve_model, name, ModelTable(**table), {}, where="x.toml", registry=registry)
    assert found.startswith("x.toml: ")
    return found.removeprefix("x.toml: ")


@pytest.mark.parametrize("table", [{}, {"endpoint_id": "qwen"}])
def test_an_id_leads_to_all_of_its_replicas(table: dict[str, Any]) -> None:
    found = target("qwen", **table)
    servers = [(each.base_url, each.api_key_env, each.client, dict(each.headers)) for each in found.servers]
    first = ("http://a.example/v1", "A_KEY", "light", {"X-Team": "a", "X-Of": "a"})
    assert servers == [first, ("http://b.example/v1", "B_KEY", "completions", {})]
    assert found.describe == "qwen: Qwen/Qwen3-8B at 2 replicas, http://a.example/v1, http://b.example/v1"
    assert (found.model, found.endpoint) == ("Qwen/Qwen3-8B", "qwen")
    assert dict(found.headers_from_state) == {"X-Session-ID": "example_id"}
    assert ModelTarget.from_json(found.to_json()) == found


def test_the_config_counts_more_than_the_registry_and_its_base_url_leaves_no_replicas() -> None:
    found = target("qwen", api_key_env="MINE", client="openai", headers={"x-team": "me"}, sticky="row")
    servers = [(each.api_key_env, each.client, dict(each.headers)) for each in found.servers]
    assert servers == [("MINE", "openai", {"X-Of": "a", "x-team": "me"}), ("MINE", "openai", {"x-team": "me"})]
    assert found.sticky == "row"
    found = target("qwen", base_url="http://mine.example/v1")
    assert (found.replicas, found.base_url, found.model) == ((), "http://mine.example/v1", "Qwen/Qwen3-8B")
    assert found.api_key_env == "A_KEY"


@pytest.mark.parametrize(
    ("client", "api", "expected"),
    [
        ("light", "openai_responses", ("light", "responses")),
        ("openai", "openai_responses", ("openai", "responses")),
        ("litellm", "openai_responses", "takes no base_url"),
        ("anthropic", "openai_responses", ("anthropic", "chat_completions")),
        ("light", "anthropic_messages", ("light", "chat_completions")),
    ],
)
def test_a_client_of_the_config_asks_the_api_of_the_registry_if_it_can(client: Any, api: Any, expected: Any) -> None:
    entry = RegisteredEndpoint("gpt", "gpt-x", "http://a.example/v1", None, api)
    registry = Registry("endpoints.toml", {"gpt": (entry,)})
    if isinstance(expected, str):
        assert expected in problem("gpt", registry, client=client)
        return
    found = resolve_model("gpt", ModelTable(client=client), {}, where="", registry=registry)
    assert (found.client, found.api) == expected


def test_a_type_or_else_the_provider_by_its_address_or_name_says_which_api_is_asked() -> None:
    assert target("claude").client == "anthropic"
    assert target("claude", api_client_type="openai_chat_completions").client == "light"
    assert target("m", base_url="http://localhost:1/v1", api_client_type="anthropic_messages").client == "anthropic"
    assert target("groq/llama").provider == "groq"
    assert target("demo/arithmetic").headers_from_state == {}
    assert target("vllm/Qwen", api_client_type="openai_chat_completions_token").client == "tokens"
    assert problem("groq/llama", api_client_type="anthropic_messages") == (
        '[model] api_client_type: groq/llama has no API "anthropic_messages"; leave it out, or set base_url to a server'
    )


def test_a_name_that_is_no_endpoint_lists_the_ids() -> None:
    assert problem("qwenn") == (
        '[experiment] model_path: "qwenn" names neither an endpoint nor a provider, did you mean "qwen"? '
        '(endpoints of configs/endpoints.toml: "qwen", "claude"); '
        "a provider's model is written as in openai/gpt-5.4-mini"
    )
    assert problem("x", endpoint_id="quen") == (
        '[model] endpoint_id: unknown endpoint "quen", did you mean "qwen"? '
        '(endpoints of configs/endpoints.toml: "qwen", "claude")'
    )
    assert problem("x", registry=None, endpoint_id="qwen") == (
        '[model] endpoint_id: there is no registry with "qwen"; write configs/endpoints.toml'
    )


PRIME = {"PRIME_API_KEY": "pit-1"}


def test_the_model_of_an_environment_is_asked_at_prime_if_only_its_key_says_where() -> None:
    found = target("openai/gpt-4.1-mini", environ=PRIME, env=True)
    assert (found.base_url, found.model) == ("https://api.pinference.ai/api/v1", "openai/gpt-4.1-mini")
    assert (found.api_key_env, dict(found.headers_from_state)) == ("PRIME_API_KEY", {"X-Session-ID": "example_id"})
    assert target("qwen", env=True, environ=PRIME).endpoint == "qwen"
    with pytest.raises(ConfigError, match='"qwenn" names neither an endpoint nor a provider, did you mean "qwen"'):
        target("qwenn", env=True, environ=PRIME)
    assert target("gpt-5", env=True, environ=PRIME).base_url == "https://api.pinference.ai/api/v1"


@pytest.mark.parametrize(
    ("name", "env", "environ", "table", "provider"),
    [
        ("openai/gpt-5", False, PRIME, {}, "openai"),
        ("openai/gpt-5", True, {}, {}, "openai"),
        ("openai/gpt-5", True, PRIME, {"api_key_env": "OPENAI_API_KEY"}, "openai"),
        ("openai/gpt-5", True, PRIME, {"base_url": "http://localhost:1/v1"}, "server"),
        ("demo/arithmetic", True, PRIME, {}, "demo"),
        ("ollama/llama", True, PRIME, {}, "ollama"),
    ],
)
def test_nothing_else_is_asked_at_prime(
    name: str, env: bool, environ: dict[str, str], table: dict[str, Any], provider: str
) -> None:
    found = target(name, env=env, environ=environ, **table)
    assert found.provider == provider
    assert found.base_url != "https://api.pinference.ai/api/v1"
