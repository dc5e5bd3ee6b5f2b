"""The model of a config: providers, base_url, keys and its client; endpoints of the registry; models at Prime."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from ssl import SSLContext
from typing import Any

import pytest

from pytest_osmosis.config.endpoints import RegisteredEndpoint, Registry
from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.evals.eval_models import resolve_model
from pytest_osmosis.models import connections, create
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.connections import LightModel
from pytest_osmosis.models.providers import LITELLM_PREFIXES, SERVICES, key_variables
from pytest_osmosis.models.targets import ModelTarget, missing_key, resolve
from tests.raised import problems_of
from tests.servers import ChatServer
from tests.unit.models.talking import KEY, PROMPT, created

WHERE = "x.toml:3"
LOCAL = "http://localhost:8000/v1"
OPENAI = "https://api.openai.com/v1"


def target(model_path: str, table: ModelTable | None = None, environ: Mapping[str, str] | None = None) -> ModelTarget:
    return resolve(model_path, table or ModelTable(), environ or {}, where=WHERE)


def refusal(model_path: str, table: ModelTable | None = None, environ: Mapping[str, str] | None = None) -> str:
    return "\n".join(problems_of(ConfigError, target, model_path, table, environ))


@pytest.mark.parametrize(
    ("model_path", "table", "environ", "base_url", "describe"),
    [
        ("openai/gpt-5-mini", {}, {}, OPENAI, "openai/gpt-5-mini"),
        ("openai/x", {}, {"OPENAI_BASE_URL": ""}, OPENAI, "openai/x"),
        ("openai/x", {"base_url": LOCAL}, {"OPENAI_BASE_URL": "http://elsewhere/v1"}, LOCAL, f"openai/x at {LOCAL}"),
        ("demo/arithmetic", {}, {"OPENAI_BASE_URL": LOCAL}, None, "demo/arithmetic (embedded)"),
        ("ollama/qwen3", {}, {}, "http://localhost:11434/v1", "ollama/qwen3 at http://localhost:11434/v1"),
        ("groq/llama", {}, {}, SERVICES["groq"].base_url, "groq/llama"),
    ],
)
def test_an_address_is_the_configs_or_the_variables_or_the_providers_and_shown_unless_known(
    model_path: str, table: dict[str, Any], environ: dict[str, str], base_url: str | None, describe: str
) -> None:
    found = target(model_path, ModelTable(**table), environ)
    assert (found.base_url, found.describe) == (base_url, describe)


@pytest.mark.parametrize("key", [None, "MY_KEY"])
@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "openai/gpt-5-mini", "demo/arithmetic", "groq/x", "bare"])
def test_with_a_base_url_the_name_is_sent_as_written_and_no_key_but_the_named_one(name: str, key: str | None) -> None:
    found = target(name, ModelTable(base_url=LOCAL, api_key_env=key))
    assert (found.provider, found.model, found.base_url, found.api_key_env) == ("server", name, LOCAL, key)
    assert found.describe == f"{name} at {LOCAL}"


@pytest.mark.parametrize("client", ["openai", "anthropic", "light"])
def test_the_table_is_carried_over_and_survives_json_without_its_key(client: Any) -> None:
    own: dict[str, Any] = {"base_url": LOCAL, "api_key_env": "MY_KEY", "headers": {"a": "b"}, "client": client}
    found = target("m", ModelTable(**own, max_retries=2, timeout_s=9), {"MY_KEY": "sk-secret-value"})
    assert (dict(found.headers), found.max_retries, found.timeout_s) == ({"a": "b"}, 2, 9.0)
    assert found.client == client
    text = json.dumps(found.to_json())
    assert ModelTarget.from_json(json.loads(text)) == found
    assert "sk-secret-value" not in text


def test_a_prefix_means_its_provider_with_its_address_and_key() -> None:
    for prefix, service in SERVICES.items():
        found = target(f"{prefix}/some/model")
        assert (found.provider, found.model) == (prefix, "some/model")
        assert (found.base_url, found.api_key_env) == (service.base_url, service.api_key_env)
        assert target(f"{prefix}/m", ModelTable(api_key_env="TEAM_KEY")).api_key_env == "TEAM_KEY"
    assert target("openai/x").api_key_env == "OPENAI_API_KEY"
    demo = target("demo/arithmetic")
    assert (demo.provider, demo.model, demo.base_url, demo.api_key_env) == ("demo", "arithmetic", None, None)


@pytest.mark.parametrize(("variable", "moved"), [("OPENAI_BASE_URL", "openai"), ("ANTHROPIC_BASE_URL", "anthropic")])
def test_a_base_url_variable_replaces_the_address_of_its_provider_alone(variable: str, moved: str) -> None:
    for prefix, service in SERVICES.items():
        found = target(f"{prefix}/m", environ={variable: LOCAL})
        assert found.base_url == (LOCAL if prefix == moved else service.base_url)
    assert target(f"{moved}/m", environ={variable: LOCAL}).describe == f"{moved}/m at {LOCAL} ({variable})"


@pytest.mark.parametrize(
    ("model_path", "base_url", "client"),
    [
        ("openai/gpt-5-mini", None, "openai"),
        ("anthropic/claude", None, "anthropic"),
        ("groq/llama", None, "light"),
        ("azure/gpt-5", None, "litellm"),
        ("demo/arithmetic", None, "embedded"),
        ("openai/gpt-5-mini", LOCAL, "light"),
        ("gpt-5-mini", "https://api.openai.com/v1", "openai"),
        ("gpt-5-mini", "https://eu.api.openai.com/v1", "openai"),
        ("claude", "https://api.anthropic.com", "anthropic"),
        ("gpt-5-mini", "https://api.openai.com.example/v1", "light"),
        ("gpt-5-mini", "https://otherapi.openai.com/v1", "light"),
    ],
)
def test_auto_means_official_clients_at_home_and_light_elsewhere(
    model_path: str, base_url: str | None, client: str
) -> None:
    found = target(model_path, ModelTable(base_url=base_url))
    assert found.client == client
    assert found.max_tokens_key == ("max_completion_tokens" if client == "openai" else "max_tokens")


@pytest.mark.parametrize("model_path", ["ok", "openai/ok", "azure/gpt-5", "litellm/openai/ok"])
@pytest.mark.parametrize("api_key_env", [None, "MY_KEY"])
def test_litellm_is_given_no_address_to_which_it_would_send_keys(model_path: str, api_key_env: str | None) -> None:
    text = refusal(model_path, ModelTable(base_url=LOCAL, client="litellm", api_key_env=api_key_env))
    assert text.startswith(f'{WHERE}: [model] client: "litellm" takes no base_url; leave out client')


@pytest.mark.parametrize(
    ("model_path", "client", "valid"),
    [
        ("anthropic/claude", "light", '"auto", "anthropic", "litellm"'),
        ("openai/gpt-5", "anthropic", '"auto", "openai", "light", "litellm"'),
        ("groq/llama", "anthropic", '"auto", "light", "openai", "litellm"'),
        ("azure/gpt-5", "light", '"auto", "litellm"'),
    ],
)
def test_a_client_that_does_not_speak_the_api_is_refused(model_path: str, client: Any, valid: str) -> None:
    text = refusal(model_path, ModelTable(client=client))
    assert text == f'{WHERE}: [model] client: "{client}" does not speak the API of {model_path}; valid: {valid}'


def test_the_seed_is_sent_under_the_services_own_name() -> None:
    assert target("groq/m").seed_key == "seed"
    assert target("mistral/m").seed_key == "random_seed"
    assert target("m", ModelTable(base_url="https://api.mistral.ai/v1")).seed_key == "random_seed"
    assert target("anthropic/m").seed_key is None
    assert target("anthropic/m", environ={"ANTHROPIC_BASE_URL": LOCAL}).seed_key == "seed"
    assert target("m", ModelTable(base_url=LOCAL, client="anthropic")).seed_key == "seed"


@pytest.mark.parametrize(
    ("name", "sent"), [*((f"{each}/m",) * 2 for each in LITELLM_PREFIXES), ("litellm/oci/m", "oci/m")]
)
def test_other_providers_go_through_litellm_by_their_whole_name(name: str, sent: str) -> None:
    found = target(name, ModelTable(api_key_env="MY_KEY"))
    assert (found.provider, found.client, found.model) == ("litellm", "litellm", sent)
    assert (found.base_url, found.api_key_env) == (None, "MY_KEY")
    assert found.describe == f"{sent} through LiteLLM"


def test_the_variables_whose_values_may_be_sent_as_keys_are_known() -> None:
    keys = {
        "OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_CUSTOM_HEADERS", "ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN",
        "GROQ_API_KEY", "HF_TOKEN", "AZURE_API_KEY", "AZURE_AD_TOKEN", "CO_API_KEY", "AWS_SECRET_ACCESS_KEY",
        "TOGETHERAI_API_KEY", "PERPLEXITYAI_API_KEY", "OCI_API_KEY", "WATSONX_APIKEY", "DATAROBOT_API_TOKEN",
    }  # fmt: skip
    others = {"PATH", "OPENAI_BASE_URL", "AZURE_API_BASE", "AZURE_CLIENT_ID", "KEYBOARD", "MAX_TOKENS"}
    assert {*key_variables({*keys, *others})} == keys


def test_an_unknown_provider_lists_the_known_ones_and_guesses() -> None:
    text = refusal("opnai/gpt-5")
    assert text.startswith(
        f'{WHERE}: [experiment] model_path: unknown provider "opnai", did you mean "openai"? (valid: demo/, '
    )
    assert all(f"{prefix}/" in text for prefix in (*SERVICES, *LITELLM_PREFIXES))
    assert "litellm/<provider>/<model>" in text
    assert text.endswith("any name with [model] base_url)")
    assert "did you mean" not in refusal("Qwen/Qwen3-8B")


@pytest.mark.parametrize(
    ("model_path", "said"),
    [
        ("OpenAI/gpt-5", 'unknown provider "OpenAI", did you mean "openai"?'),
        ("gpt-5-mini", 'unknown provider "gpt-5-mini" (valid: demo/, openai/'),
        ("demo/aritmetic", '"demo/aritmetic" names no model (valid: demo/arithmetic, demo/judge and demo/script)'),
        ("openai/", '"openai/" names no model (valid: openai/<model>)'),
        ("litellm/m", '"litellm/m" names no model (valid: litellm/<provider>/<model>)'),
    ],
)
def test_a_name_without_its_provider_or_model_is_refused_with_the_valid_ones(model_path: str, said: str) -> None:
    assert said in refusal(model_path)


HOST = "http://host/v1"
BEFORE = 'must end before "{}", which is added to it, got "http://host/v1{}"'


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *(
            (url, "[model] base_url: ")
            for url in ("localhost:8000", "ftp://h/v1", "http://", "not a url", "http://h:port/v1")
        ),
        ("http://host/v1?api-version=1&key=hunter2", "[model] base_url: must not contain a ? or #"),
        ("http://host/v1#hunter2", "[model] base_url: must not contain a ? or #"),
        ("http://me:hunter2@host/v1", "must not contain a user name or password"),
        *((f"{HOST}{path}", BEFORE.format(path.rstrip("/"), path)) for path in ("/chat/completions", "/messages/")),
    ],
)
def test_a_base_url_that_is_no_address_or_more_than_one_is_refused_and_no_secret_quoted(url: str, said: str) -> None:
    text = refusal("m", ModelTable(base_url=url))
    assert said in text
    assert 'as in "http://localhost:8000/v1"' in text
    assert "hunter2" not in text
    assert "environment variable OPENAI_BASE_URL: must be" in refusal("openai/x", None, {"OPENAI_BASE_URL": "h"})


@pytest.mark.parametrize("value", [None, "", " \n"])
def test_a_missing_key_names_its_variable_and_the_ways_to_set_it(value: str | None) -> None:
    environ, state = ({}, "is not set") if value is None else ({"MY_KEY": value}, "is empty")
    problem = missing_key(target("m", ModelTable(base_url=LOCAL, api_key_env="MY_KEY")), environ, where=WHERE)
    assert problem is not None
    text = str(problem)
    assert text.startswith(f"{WHERE}: m at {LOCAL}: its key variable MY_KEY {state};")
    assert "export MY_KEY=" in text
    assert "--osmosis-secrets-file" in text


async def test_openai_at_another_base_url_gets_its_key_and_organization(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    with ChatServer() as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        async with created(resolve("openai/gpt-5-mini", ModelTable(), environ, where="x"), environ) as model:
            await model.chat(ChatRequest(messages=PROMPT))
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["openai-organization"]) == (f"Bearer {KEY}", "org-1")
    assert server.bodies[0]["model"] == "gpt-5-mini"


def test_a_model_without_its_key_or_litellm_is_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    target = resolve("openai/x", ModelTable(), {}, where="x.toml:1")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        create(target, {"OPENAI_API_KEY": ""}, 1)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    target = resolve("azure/gpt-5", ModelTable(), {}, where="x.toml:1")
    install = r"azure/gpt-5 through LiteLLM: LiteLLM is not installed; pip install 'pytest-osmosis\[litellm\]'"
    with pytest.raises(ConfigError, match=install):
        create(target, {}, 1)


@pytest.mark.parametrize("missing", ["httpx", "httpx2"])
def test_certificates_need_either_library_below_openais_client(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    installed = next(name for name in ("httpx2", "httpx") if importlib.util.find_spec(name))
    for name in ("httpx", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else importlib.import_module(installed))
    connections._certificates.cache_clear()
    create(ModelTarget("server", "m", "https://localhost:8000/v1", client="light"), {}, 1)


def test_certificates_are_loaded_once_for_the_same_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def made() -> SSLContext | bool:
        model = create(ModelTarget("server", "m", "https://localhost:8000/v1", client="light"), {}, 1)
        assert isinstance(model, LightModel)
        return model._certificates

    before = made()
    assert made() is before
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert made() is not before


A = RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://a.example/v1", "A_KEY", None, {"X-Team": "a", "X-Of": "a"})
B = RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://b.example/v1", "B_KEY", "openai_completions", {})
CLAUDE = RegisteredEndpoint("claude", "claude-5", "https://api.anthropic.com", "ANTHROPIC_API_KEY")
REGISTRY = Registry("configs/endpoints.toml", {"qwen": (A, B), "claude": (CLAUDE,)})


def registered(name: str, *, environ: Mapping[str, str] | None = None, env: bool = False, **table: Any) -> ModelTarget:
    return resolve_model(name, ModelTable(**table), environ or {}, where="x", registry=REGISTRY, of_environment=env)


def problem_of_registry(name: str, registry: Registry | None = REGISTRY, **table: Any) -> str:
    (found,) = problems_of(ConfigError, resolve_model, name, ModelTable(**table), {}, where="x.toml", registry=registry)
    assert found.startswith("x.toml: ")
    return found.removeprefix("x.toml: ")


@pytest.mark.parametrize("table", [{}, {"endpoint_id": "qwen"}])
def test_an_id_leads_to_all_of_its_replicas(table: dict[str, Any]) -> None:
    found = registered("qwen", **table)
    servers = [(each.base_url, each.api_key_env, each.client, dict(each.headers)) for each in found.servers]
    first = ("http://a.example/v1", "A_KEY", "light", {"X-Team": "a", "X-Of": "a"})
    assert servers == [first, ("http://b.example/v1", "B_KEY", "completions", {})]
    assert found.describe == "qwen: Qwen/Qwen3-8B at 2 replicas, http://a.example/v1, http://b.example/v1"
    assert (found.model, found.endpoint) == ("Qwen/Qwen3-8B", "qwen")
    assert dict(found.headers_from_state) == {"X-Session-ID": "example_id"}
    assert ModelTarget.from_json(found.to_json()) == found


def test_the_config_counts_more_than_the_registry_and_its_base_url_leaves_no_replicas() -> None:
    found = registered("qwen", api_key_env="MINE", client="openai", headers={"x-team": "me"}, sticky="row")
    servers = [(each.api_key_env, each.client, dict(each.headers)) for each in found.servers]
    assert servers == [("MINE", "openai", {"X-Of": "a", "x-team": "me"}), ("MINE", "openai", {"x-team": "me"})]
    assert found.sticky == "row"
    found = registered("qwen", base_url="http://mine.example/v1")
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
        assert expected in problem_of_registry("gpt", registry, client=client)
        return
    found = resolve_model("gpt", ModelTable(client=client), {}, where="", registry=registry)
    assert (found.client, found.api) == expected


def test_a_type_or_else_the_provider_by_its_address_or_name_says_which_api_is_asked() -> None:
    assert registered("claude").client == "anthropic"
    assert registered("claude", api_client_type="openai_chat_completions").client == "light"
    assert registered("m", base_url="http://localhost:1/v1", api_client_type="anthropic_messages").client == "anthropic"
    assert registered("groq/llama").provider == "groq"
    assert registered("demo/arithmetic").headers_from_state == {}
    assert registered("vllm/Qwen", api_client_type="openai_chat_completions_token").client == "tokens"
    assert problem_of_registry("groq/llama", api_client_type="anthropic_messages") == (
        '[model] api_client_type: groq/llama has no API "anthropic_messages"; leave it out, or set base_url to a server'
    )


def test_a_name_that_is_no_endpoint_lists_the_ids() -> None:
    assert problem_of_registry("qwenn") == (
        '[experiment] model_path: "qwenn" names neither an endpoint nor a provider, did you mean "qwen"? '
        '(endpoints of configs/endpoints.toml: "qwen", "claude"); '
        "a provider's model is written as in openai/gpt-5.4-mini"
    )
    assert problem_of_registry("x", endpoint_id="quen") == (
        '[model] endpoint_id: unknown endpoint "quen", did you mean "qwen"? '
        '(endpoints of configs/endpoints.toml: "qwen", "claude")'
    )
    assert problem_of_registry("x", registry=None, endpoint_id="qwen") == (
        '[model] endpoint_id: there is no registry with "qwen"; write configs/endpoints.toml'
    )


PRIME = {"PRIME_API_KEY": "pit-1"}


def test_the_model_of_an_environment_is_asked_at_prime_if_only_its_key_says_where() -> None:
    found = registered("openai/gpt-4.1-mini", environ=PRIME, env=True)
    assert (found.base_url, found.model) == ("https://api.pinference.ai/api/v1", "openai/gpt-4.1-mini")
    assert (found.api_key_env, dict(found.headers_from_state)) == ("PRIME_API_KEY", {"X-Session-ID": "example_id"})
    assert registered("qwen", env=True, environ=PRIME).endpoint == "qwen"
    with pytest.raises(ConfigError, match='"qwenn" names neither an endpoint nor a provider, did you mean "qwen"'):
        registered("qwenn", env=True, environ=PRIME)
    assert registered("gpt-5", env=True, environ=PRIME).base_url == "https://api.pinference.ai/api/v1"


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
    found = registered(name, env=env, environ=environ, **table)
    assert found.provider == provider
    assert found.base_url != "https://api.pinference.ai/api/v1"
