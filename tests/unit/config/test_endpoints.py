"""The registry of endpoints: what it may hold, and that each mistake in it is a problem at its line."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from pytest_osmosis.config.document import Document, Lines
from pytest_osmosis.config.endpoints import ALIASES, ENDPOINT, RegisteredEndpoint, Registry, load_registry
from pytest_osmosis.errors import ConfigError
from tests.unit.config.conftest import cases_in, check_cases

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
    with pytest.raises(ConfigError) as caught, contextlib.chdir(folder):  # paths are shown from here
        registry_of(folder, text)
    return [f"{each.where.rpartition(':')[2]}: {each.text}" for each in caught.value.problems]


def test_entries_with_one_id_are_replicas_and_keys_have_two_names(tmp_path: Path) -> None:
    one = RegisteredEndpoint("qwen", "Qwen/Qwen3-8B", "http://a.example/v1", "A_KEY", None, {"X-Team": "evals"})
    other = RegisteredEndpoint(
        "qwen", "Qwen/Qwen3-8B", "http://b.example/v1", "B_KEY", "openai_completions", {"X-Team": "others"}
    )
    local = RegisteredEndpoint("local", "llama", "http://localhost:8000/v1")
    for text in (VALID, VALID + 'api_base_url = "http://localhost:8000/v1"\n'):
        found = registry_of(tmp_path, text).endpoints.items()
        read = {id: tuple(replace(each, where="") for each in entries) for id, entries in found}
        assert read == {"qwen": (one, other), "local": (local,)}


def test_without_a_file_there_is_no_registry_and_a_folder_in_its_place_is_a_problem(tmp_path: Path) -> None:
    assert load_registry(tmp_path, None, "x.toml") is None
    (tmp_path / "configs" / "endpoints.toml").mkdir(parents=True)
    with pytest.raises(ConfigError, match=r"folder|directory"):
        load_registry(tmp_path, None, "x.toml")


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    check_cases(cases_in("endpoints")["endpoints"], lambda text: problems_in(tmp_path, f"{text}\n"))


@pytest.mark.parametrize(
    ("named", "file"),
    [("elsewhere.toml", "elsewhere.toml"), ("configs", "configs/endpoints.toml"), ("endpoints.py", "endpoints.py")],
)
def test_a_named_registry_must_be_there(tmp_path: Path, named: str, file: str) -> None:
    (tmp_path / "configs").mkdir()
    with pytest.raises(ConfigError, match=rf"^x\.toml: \[model\] endpoints_path: .*{file} does not exist"):
        load_registry(tmp_path, named, "x.toml")


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
