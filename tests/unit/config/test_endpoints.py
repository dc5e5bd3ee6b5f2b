"""The registry of endpoints: what it may hold, and that each mistake in it is a problem at its line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_osmosis.config.document import Document, Lines
from pytest_osmosis.config.endpoints import ALIASES, ENDPOINT, RegisteredEndpoint, Registry, load_registry
from pytest_osmosis.errors import ConfigError

VALID = """\
[[endpoint]]
endpoint_id = "qwen"
model = "Qwen/Qwen3-8B"
url = "http://a.example/v1"
key = "A_KEY"
headers = {"X-Team" = "evals"}

[[endpoint]]
endpoint_id = "qwen"
model = "Qwen/Qwen3-8B"
api_base_url = "http://b.example/v1"
api_key_var = "B_KEY"
type = "openai_completions"
extra_headers = {"X-Team" = "others"}

[[endpoint]]
endpoint_id = "local"
model = "llama"
url = "http://localhost:8000/v1"
"""


def registry_of(folder: Path, text: str) -> Registry:
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / "endpoints.toml").write_text(text, encoding="utf-8")
    registry = load_registry(folder, None, "x.toml")
    assert registry is not None
    assert registry == load_registry(folder, "configs", "x.toml"), "it may be named by its folder"
    return registry


def problems_in(folder: Path, text: str) -> list[str]:
    """The problems of a registry, each with its line."""
    with pytest.raises(ConfigError) as caught:
        registry_of(folder, text)
    return [f"{each.where.rpartition(':')[2]}: {each.text}" for each in caught.value.problems]


def test_entries_with_one_id_are_replicas_and_keys_have_two_names(tmp_path: Path) -> None:
    expected = {
        "qwen": (
            RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://a.example/v1", "A_KEY", None, {"X-Team": "evals"}),
            RegisteredEndpoint(
                "qwen", "Qwen/Qwen3-8B", "http://b.example/v1", "B_KEY", "openai_completions", {"X-Team": "others"}
            ),
        ),
        "local": (RegisteredEndpoint("local", "llama", "http://localhost:8000/v1"),),
    }
    assert dict(registry_of(tmp_path, VALID).endpoints) == expected
    both_names = registry_of(tmp_path, VALID + 'api_base_url = "http://localhost:8000/v1"\n')
    assert dict(both_names.endpoints) == expected


def test_without_a_file_there_is_no_registry_and_a_folder_in_its_place_is_a_problem(tmp_path: Path) -> None:
    assert load_registry(tmp_path, None, "x.toml") is None
    (tmp_path / "configs" / "endpoints.toml").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"folder|directory"):
        load_registry(tmp_path, None, "x.toml")


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    text = """\
endpoints = 1
[[endpoint]]
endpoint_id = "a"
model = 7
url = "a.example"
key = "sk-live-0123456789"
client_type = "anthropic_messages"

[[endpoint]]
endpoint_id = " "
modell = "m"
api_client_type = "openai_chat"
headers = {"X Y" = "a", "X-Token" = 5}

[[endpoint]]
endpoint_id = "b"
model = "m"
url = "http://me:secret@b.example/v1"
api_base_url = "http://c.example/v1"
headers = {}
extra_headers = {}
"""
    assert problems_in(tmp_path, text) == [
        "1: endpoints: unknown, did you mean [[endpoint]]? (valid: [[endpoint]])",
        '4: [[endpoint]] "a" model: must be a string that is not blank, got 7',
        '5: [[endpoint]] "a" url: must be an http:// or https:// URL with a host, got "a.example"',
        '6: [[endpoint]] "a" key: must be the name of an environment variable, not the key itself, got a string',
        '7: [[endpoint]] "a" client_type: unknown key, did you mean "api_client_type"? '
        "(valid: endpoint_id, model, url, key, api_client_type, headers)",
        '10: [[endpoint]] endpoint_id: must be a string that is not blank, got " "',
        '11: [[endpoint]] modell: unknown key, did you mean "model"? '
        "(valid: endpoint_id, model, url, key, api_client_type, headers)",
        '12: [[endpoint]] api_client_type: must be one of "openai_chat_completions", "openai_responses", '
        '"openai_completions", "openai_chat_completions_token", "anthropic_messages", got "openai_chat"',
        '13: [[endpoint]] headers."X Y": the name must be an HTTP header name, got "X Y"',
        "13: [[endpoint]] headers.X-Token: must be a string without line breaks, got 5",
        "9: [[endpoint]]: lacks model, url",
        '18: [[endpoint]] "b" url: must not contain a user name, a password, ? or #; name the variable of a key in key',
        '19: [[endpoint]] "b" api_base_url: is another name of url, which is set too, and they differ; '
        "keep one of them",
        '21: [[endpoint]] "b" extra_headers: is another name of headers, which is set too, and only one of them may '
        "be set; keep one of them",
    ]


def test_replicas_must_have_one_model_and_single_brackets_are_explained(tmp_path: Path) -> None:
    same, other = VALID.split("\n\n")[0], VALID.split("\n\n")[0].replace("Qwen3-8B", "Qwen3-14B")
    assert [text.partition(" (")[0] for text in problems_in(tmp_path, f"{same}\n\n{other}")] == [
        '8: [[endpoint]] "qwen" model: replicas must have the same model, got "Qwen/Qwen3-14B" after "Qwen/Qwen3-8B"',
    ]
    (problem,) = problems_in(tmp_path, '[endpoint]\nendpoint_id = "a"\n')
    assert problem == (
        '1: [[endpoint]]: must be an array of tables, each under its own [[endpoint]], got {endpoint_id = "a"}'
    )


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("elsewhere.toml", "elsewhere.toml does not exist"),
        ("configs", "configs/endpoints.toml does not exist"),
        ("endpoints.py", "endpoints.py does not exist"),
    ],
)
def test_a_named_registry_must_be_there(tmp_path: Path, named: str, expected: str) -> None:
    (tmp_path / "configs").mkdir()
    with pytest.raises(ConfigError) as caught:
        load_registry(tmp_path, named, "x.toml")
    (problem,) = caught.value.problems
    assert problem.where == "x.toml"
    assert expected in problem.text
    assert problem.text.startswith("[model] endpoints_path: ")


NAMES = st.sampled_from([*(field.name for field in ENDPOINT.fields), *ALIASES, "client_type", "x", ""])
VALUES = st.recursive(
    st.one_of(st.text(), st.integers(), st.floats(), st.booleans(), st.just("http://[a")),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(), inner, max_size=3)),
    max_leaves=6,
)


@given(st.one_of(VALUES, st.lists(st.dictionaries(NAMES, VALUES, max_size=5), max_size=3)))
def test_no_content_raises_anything_but_problems(content: object) -> None:
    document = Document(Path("endpoints.toml"), "endpoints.toml", "", {"endpoint": content}, Lines(""))
    with contextlib.suppress(ConfigError):
        Registry.of(document)
