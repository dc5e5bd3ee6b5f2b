"""The client that each target gets, and the errors without a key or LiteLLM."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from ssl import SSLContext

import pytest

from pytest_osmosis.config.tables import ModelTable
from pytest_osmosis.errors import ConfigError
from pytest_osmosis.models import connections, create
from pytest_osmosis.models.base import ChatRequest
from pytest_osmosis.models.connections import LightModel
from pytest_osmosis.models.targets import ModelTarget, resolve
from tests.servers import ChatServer
from tests.unit.models.talking import KEY, PROMPT, created


async def test_openai_at_another_base_url_gets_its_key_and_organization(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    with ChatServer() as server:
        environ = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": KEY}
        async with created(resolve("openai/gpt-5-mini", ModelTable(), environ, where="x"), environ) as model:
            await model.chat(ChatRequest(messages=PROMPT))
    headers = server.requests[0].headers
    assert (headers["authorization"], headers["openai-organization"]) == (f"Bearer {KEY}", "org-1")
    assert server.bodies[0]["model"] == "gpt-5-mini"


def test_a_model_without_its_key_is_not_made() -> None:
    target = resolve("openai/x", ModelTable(), {}, where="x.toml:1")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        create(target, {"OPENAI_API_KEY": ""}, 1)


def test_without_litellm_its_targets_are_not_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    target = resolve("azure/gpt-5", ModelTable(), {}, where="x.toml:1")
    with pytest.raises(ConfigError, match=r"LiteLLM is not installed; pip install 'pytest-osmosis\[litellm\]'"):
        create(target, {}, 1)


@pytest.mark.parametrize("missing", ["httpx", "httpx2"])
def test_certificates_need_either_of_the_libraries_below_the_openai_client(
    missing: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = next(name for name in ("httpx2", "httpx") if importlib.util.find_spec(name))
    for name in ("httpx", "httpx2"):
        monkeypatch.setitem(sys.modules, name, None if name == missing else importlib.import_module(installed))
    connections._certificates.cache_clear()
    create(ModelTarget("server", "m", "https://localhost:8000/v1", client="light"), {}, 1)


def test_the_clients_of_a_process_load_certificates_once_for_the_same_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> SSLContext | bool:
        model = create(ModelTarget("server", "m", "https://localhost:8000/v1", client="light"), {}, 1)
        assert isinstance(model, LightModel)
        return model._connections._certificates

    before = made()
    assert made() is before
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))
    assert made() is not before
