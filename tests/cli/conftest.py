"""Fixtures of the tests of our commands."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from pytest_osmosis import cli
from tests.cli.background import Background
from tests.cli.stored_runs import Cli, RealRuns, Stored, make_runs, write_run


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """Run a command in an empty folder, check its exit status (0, or `fails`) and return what it prints."""
    monkeypatch.chdir(tmp_path)

    def typed(*arguments: str, fails: int = 0) -> str:
        assert cli.main(arguments) == fails
        said = capsys.readouterr()
        return said.err if fails else said.out

    return typed


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """A function that writes eval runs into the folder where `typed` types."""
    return partial(write_run, tmp_path)


@pytest.fixture(scope="session")
def real_runs(tmp_path_factory: pytest.TempPathFactory) -> RealRuns:
    """Real eval runs in a workspace that no test changes."""
    return make_runs(tmp_path_factory.mktemp("evaluated"))


@pytest.fixture
def there(real_runs: RealRuns, typed: Cli, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """Run commands in the workspace with the real runs."""
    monkeypatch.chdir(real_runs.root)
    return typed


@pytest.fixture
def copied(real_runs: RealRuns, tmp_path: Path) -> RealRuns:
    """A copy of the real runs in the folder where `typed` types."""
    return real_runs.copied(tmp_path)


@pytest.fixture
def background(tmp_path: Path) -> Iterator[Background]:
    background = Background(tmp_path)
    yield background
    background.close()
