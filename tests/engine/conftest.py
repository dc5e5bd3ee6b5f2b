"""Fixtures: a workspace to run evals in, a server, and engines whose turns the test takes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.engine.evaluating import Workspace
from tests.engine.stepped import Make, SteppedEngine
from tests.servers import ChatServer, reply


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """Answers 42 to everything."""
    with ChatServer(reply("42")) as server:
        yield server


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Make]:
    """Makes engines, and ends those that the test has not."""
    made: list[SteppedEngine] = []

    def make_one(n_runs: int = 4, **job: Any) -> SteppedEngine:
        made.append(SteppedEngine(tmp_path, n_runs, **job))
        return made[-1]

    yield make_one
    for stepped in made:
        stepped.end()
