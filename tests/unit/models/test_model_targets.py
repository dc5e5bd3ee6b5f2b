"""Which model a config means: provider prefixes, base_url, keys, and the errors for what means none."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping

import pytest

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.models.targets import LATER_PROVIDERS, ModelTarget, missing_key, resolve

WHERE = "x.toml:3"
LOCAL = "http://localhost:8000/v1"


def target(model_path: str, table: ModelTable | None = None, environ: Mapping[str, str] | None = None) -> ModelTarget:
    return resolve(model_path, table or ModelTable(), environ or {}, where=WHERE)


def refusal(model_path: str, table: ModelTable | None = None, environ: Mapping[str, str] | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        target(model_path, table, environ)
    return str(caught.value)


def test_the_openai_prefix_means_openai_with_its_key() -> None:
    found = target("openai/gpt-5-mini")
    assert (found.provider, found.model, found.base_url) == ("openai", "gpt-5-mini", "https://api.openai.com/v1")
    assert found.api_key_env == "OPENAI_API_KEY"
    assert found.describe == "openai/gpt-5-mini"


def test_api_key_env_replaces_the_key_of_openai() -> None:
    assert target("openai/gpt-5-mini", ModelTable(api_key_env="TEAM_KEY")).api_key_env == "TEAM_KEY"


def test_openai_base_url_moves_the_openai_prefix_and_is_shown() -> None:
    found = target("openai/gpt-5-mini", environ={"OPENAI_BASE_URL": LOCAL})
    assert (found.provider, found.base_url, found.api_key_env) == ("openai", LOCAL, "OPENAI_API_KEY")
    assert found.describe == f"openai/gpt-5-mini at {LOCAL} (OPENAI_BASE_URL)"


def test_an_empty_openai_base_url_moves_nothing() -> None:
    assert target("openai/x", environ={"OPENAI_BASE_URL": ""}).base_url == "https://api.openai.com/v1"


def test_openai_base_url_comes_after_the_config_and_leaves_the_demo_alone() -> None:
    environ = {"OPENAI_BASE_URL": "http://elsewhere/v1"}
    assert target("openai/x", ModelTable(base_url=LOCAL), environ).base_url == LOCAL
    assert target("demo/arithmetic", environ=environ).base_url is None


def test_the_demo_model_is_embedded() -> None:
    found = target("demo/arithmetic")
    assert (found.provider, found.model, found.base_url, found.api_key_env) == ("demo", "arithmetic", None, None)
    assert found.describe == "demo/arithmetic (embedded)"


@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "openai/gpt-5-mini", "demo/arithmetic", "groq/x", "bare"])
def test_with_a_base_url_the_name_is_sent_as_written_and_no_key(name: str) -> None:
    found = target(name, ModelTable(base_url=LOCAL))
    assert (found.provider, found.model, found.base_url, found.api_key_env) == ("server", name, LOCAL, None)
    assert found.describe == f"{name} at {LOCAL}"


def test_with_a_base_url_the_key_is_the_one_that_is_named() -> None:
    assert target("m", ModelTable(base_url=LOCAL, api_key_env="MY_KEY")).api_key_env == "MY_KEY"


def test_the_table_is_carried_over() -> None:
    table = ModelTable(base_url=LOCAL, headers={"x-team": "evals"}, max_retries=2, timeout_s=9.0, client="openai")
    found = target("m", table)
    assert (dict(found.headers), found.max_retries, found.timeout_s, found.client) == (
        {"x-team": "evals"},
        2,
        9.0,
        "openai",
    )


@pytest.mark.parametrize(
    ("base_url", "key"),
    [
        (None, "max_completion_tokens"),
        ("https://api.openai.com/v1", "max_completion_tokens"),
        ("https://eu.api.openai.com/v1", "max_completion_tokens"),
        ("https://api.openai.com.example/v1", "max_tokens"),
        ("https://otherapi.openai.com/v1", "max_tokens"),
        (LOCAL, "max_tokens"),
    ],
)
def test_only_openai_itself_is_told_max_completion_tokens(base_url: str | None, key: str) -> None:
    assert target("openai/x", ModelTable(base_url=base_url)).max_tokens_key == key


def test_a_target_survives_its_json_and_holds_no_key() -> None:
    table = ModelTable(base_url=LOCAL, api_key_env="MY_KEY", headers={"a": "b"}, max_retries=1)
    found = target("Qwen/Qwen3-8B", table, {"MY_KEY": "sk-secret-value"})
    text = json.dumps(found.to_json())
    assert ModelTarget.from_json(json.loads(text)) == found
    assert "sk-secret-value" not in text


@pytest.mark.parametrize("provider", LATER_PROVIDERS)
def test_a_provider_of_later_is_refused_with_the_way_round(provider: str) -> None:
    text = refusal(f"{provider}/some-model")
    assert text.startswith(f'{WHERE}: [experiment] model_path: provider "{provider}": not supported yet; ')
    assert "set [model] base_url" in text
    assert '"some-model"' in text


def test_an_unknown_provider_lists_the_known_ones_and_guesses() -> None:
    text = refusal("opnai/gpt-5")
    assert text.startswith(f'{WHERE}: [experiment] model_path: unknown provider "opnai"; known: demo/, openai/')
    assert "groq/" in text
    assert text.endswith('did you mean "openai/gpt-5"?')


def test_a_provider_in_capitals_is_guessed() -> None:
    assert 'did you mean "openai/gpt-5"?' in refusal("OpenAI/gpt-5")


def test_an_unknown_provider_like_no_other_gets_no_guess() -> None:
    assert "did you mean" not in refusal("Qwen/Qwen3-8B")


def test_a_bare_name_is_no_provider() -> None:
    text = refusal("gpt-5-mini")
    assert '"gpt-5-mini" names no provider; known: demo/, openai/' in text
    assert 'did you mean "openai/gpt-5-mini"?' in text
    assert 'did you mean "demo/arithmetic"?' in refusal("arithmetic")


def test_an_unknown_demo_model_is_refused() -> None:
    text = refusal("demo/aritmetic")
    assert '"demo/aritmetic" is no model of provider "demo", which has demo/arithmetic' in text
    assert 'did you mean "demo/arithmetic"?' in text


def test_a_provider_without_a_model_is_refused() -> None:
    assert '"openai/" is no model of provider "openai", which has openai/<model>' in refusal("openai/")


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://h/v1", "http://", "not a url", "http://h:port/v1"])
def test_a_base_url_that_is_no_address_is_refused(url: str) -> None:
    text = refusal("m", ModelTable(base_url=url))
    assert text.startswith(f"{WHERE}: [model] base_url: ")
    assert 'as in "http://localhost:8000/v1"' in text


def test_openai_base_url_that_is_no_address_is_refused_by_name() -> None:
    assert "environment variable OPENAI_BASE_URL: must be" in refusal("openai/x", None, {"OPENAI_BASE_URL": "h"})


def test_a_password_in_a_base_url_is_refused_and_not_quoted() -> None:
    text = refusal("m", ModelTable(base_url="http://me:hunter2@host/v1"))
    assert "must not hold a user name or password" in text
    assert "hunter2" not in text


@pytest.mark.parametrize(
    ("environ", "state"), [({}, "is not set"), ({"MY_KEY": ""}, "is empty"), ({"MY_KEY": " \n"}, "is empty")]
)
def test_a_missing_key_names_its_variable_and_the_ways_to_set_it(environ: dict[str, str], state: str) -> None:
    problem = missing_key(target("m", ModelTable(base_url=LOCAL, api_key_env="MY_KEY")), environ, where=WHERE)
    assert problem is not None
    text = str(problem)
    assert text.startswith(f"{WHERE}: m at {LOCAL}: the environment variable MY_KEY, which holds its key, {state};")
    assert "export MY_KEY=" in text
    assert "--osmosis-secrets-file" in text


def test_no_key_is_missing_where_none_is_wanted_or_it_is_set() -> None:
    assert missing_key(target("demo/arithmetic"), {}, where=WHERE) is None
    assert missing_key(target("m", ModelTable(base_url=LOCAL)), {}, where=WHERE) is None
    assert missing_key(target("openai/x"), {"OPENAI_API_KEY": "k"}, where=WHERE) is None


def test_resolving_needs_no_key_and_loads_no_client() -> None:
    code = (
        "import sys\n"
        "from pytest_osmosis.config.tables import ModelTable\n"
        "from pytest_osmosis.models.targets import resolve\n"
        "resolve('openai/x', ModelTable(), {}, where='x.toml:1')\n"
        "print(sorted({'asyncio', 'openai', 'aiohttp', 'httpx2'} & set(sys.modules)))\n"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
