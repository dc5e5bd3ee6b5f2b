"""The secrets of an eval are known before its config is checked, however broken it is."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config import Override, SecretsSource
from pytest_osmosis.config.document import read_document
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.evals.known_secrets import known_secrets

ENVIRON = {"A_TOKEN": "value-of-a", "B_TOKEN": "value-of-b", "GROQ_API_KEY": "value-of-groq", "HOME": "/home/me"}
TOML = """
[experiment]
model_path = 3
[model]
api_key_env = "A_TOKEN"
headers = { Authorization = "Bearer value-of-header", X-Trace = "plain" }
base_url = "https://me:value-of-pass%21@host/v1"
[env]
OTHER_API_KEY = "value-of-env"
HOME = "plain"
[baseline]
api_key_env = "sk-pasted-key-itself"
[secrets]
required = ["B_TOKEN", "HOMER"]
"""
EXPECTED = {
    *("value-of-a", "value-of-b", "value-of-groq", "value-of-header", "value-of-pass!", "value-of-env"),
    "sk-pasted-key-itself",
}

TABLES = ("secrets", "model", "baseline", "env", "headers")
KEYS = ("required", "api_key_env", "headers", "env", "secrets", "base_url")


def values(path: Path | None, *overrides: Override, environ: Mapping[str, str] = ENVIRON, **options: Any) -> set[str]:
    sources = known_secrets(path, overrides, folder=Path(), environ=environ, **options)
    return {value for source in sources for value in source.values() if value}


def test_names_and_values_in_a_config_and_in_each_of_several_evals_are_found(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text(TOML)
    assert values(path) == EXPECTED
    path.write_text(
        'api_key_var = "A_TOKEN"\n[[eval]]\nheader = "Authorization: Bearer value-1"\n'
        '[[eval]]\nheaders = {authorization = "Bearer value-2"}\n'
        '[[ablation]]\nsweep.header = [["X-Api-Key: value-3"], ["X-Api-Key: value-4"]]\n'
        'sweep.headers = [{X-Api-Key = "value-5"}, {X-Api-Key = "value-6"}]\n'
    )
    assert values(path) == {"value-of-a", "value-of-groq", *(f"value-{number}" for number in range(1, 7))}


def test_no_message_on_what_is_no_toml_quotes_a_value(tmp_path: Path) -> None:
    """The values in it are not known, so they would not be redacted."""
    path, said = tmp_path / "x.toml", list[str]()
    for at in range(len(TOML)):
        for text in ("", "=", '"', "\n", "\\", TOML[at] * 2):
            path.write_text(TOML[:at] + text + TOML[at + 1 :])
            try:
                read_document(path)
            except ConfigError as error:
                said.append(str(error))

    assert len(said) > 1000
    assert not [text for text in said if re.search("value-of|sk-pasted", text)]


@pytest.mark.parametrize(
    "content", [b"", b"[[[", b"secrets = 1", b"[secrets]\nrequired = 1", b"[secrets]\nrequired = [1]"]
)
def test_nothing_that_is_wrong_raises(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(content)
    assert values(path) == {"value-of-groq"}
    assert values(tmp_path / "missing.toml") == {"value-of-groq"}
    assert values(tmp_path) == {"value-of-groq"}


def test_pyproject_options_secrets_files_and_variables_of_clients_count(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.pytest-osmosis.eval.x.model]\napi_key_env = "A_TOKEN"\n')
    typed = Override("secrets", "required", '["B_TOKEN"]', "--osmosis-set", as_toml=True)
    named = Override("model", "api_key_env", "B_TOKEN", "--osmosis-api-key-env")
    header = Override("model", "headers", "value-of-typed", "--osmosis-set", below=("X-Token",), as_toml=True)
    assert values(tmp_path / "x.toml", named, header) == {"value-of-a", "value-of-b", "value-of-groq", "value-of-typed"}
    assert values(None, typed) == {"value-of-b", "value-of-groq"}
    (tmp_path / ".env").write_text("X=value-in-file\nbroken\n")
    assert values(None, secrets=SecretsSource(tmp_path / ".env")) == {"value-in-file", "value-of-groq"}
    assert values(None, secrets=SecretsSource("-", lambda: "X=value-typed")) == {"value-typed", "value-of-groq"}
    assert values(None, secrets=SecretsSource(tmp_path / "missing")) == {"value-of-groq"}
    headers = "X-Api-Key: value-of-custom\nX-Trace: plain-trace"
    environ = {"OPENAI_CUSTOM_HEADERS": headers, "OPENAI_BASE_URL": "https://me:value-of-url@h"}
    assert values(None, environ=environ) == {headers, "value-of-custom", "value-of-url"}


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from([*TABLES, *KEYS]) | st.text(), inner),
    max_leaves=12,
)


@given(st.sampled_from(TABLES), st.sampled_from(KEYS), VALUES, st.booleans())
def test_no_value_of_an_option_raises(table: str, key: str, value: object, as_toml: bool) -> None:
    values(None, Override(table, key, value, "--osmosis-set", as_toml=as_toml))


def test_the_registry_of_endpoints_counts_wherever_it_is(tmp_path: Path) -> None:
    registry = '[[endpoint]]\nkey = "TEAM_KEY_NAME"\nextra_headers = {"X-Token" = "token-of-the-registry"}\n'
    elsewhere, config = '[[endpoint]]\nkey = "sk-no name"\n', '[model]\nendpoints_path = "elsewhere"\n'
    files = {"configs/endpoints.toml": registry, "elsewhere/endpoints.toml": elsewhere, "configs/x.toml": config}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = values(tmp_path / "configs/x.toml", environ={"TEAM_KEY_NAME": "value-of-the-key"})
    assert {"value-of-the-key", "token-of-the-registry", "sk-no name"} <= found
