"""Tests here talk to loopback only, and know every variable that the clients read."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator

import pytest

from tests.unit.models.talking import CLIENT


@pytest.fixture(autouse=True)
def no_ambient_model_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "SSL_CERT_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)


@pytest.fixture(autouse=True)
def client(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a module hold for each client that its `pytestmark` names."""
    monkeypatch.setattr(CLIENT, "name", getattr(request, "param", "light"))


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port at which nothing listens. It is held, so that no other process is given it meanwhile."""
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        yield int(held.getsockname()[1])
