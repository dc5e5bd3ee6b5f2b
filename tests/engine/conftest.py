"""Fixtures: a workspace to run evals in, and a server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engine.evaluating import Workspace
from tests.servers import ChatServer, reply


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """Answers 42 to everything."""
    with ChatServer(reply("42")) as server:
        yield server
