"""Tests here talk to loopback only, and know every variable that the clients read."""

from __future__ import annotations

import os

import pytest


@pytest.fixture(autouse=True)
def no_ambient_model_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("OPENAI_", "ANTHROPIC_", "SSL_CERT_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
