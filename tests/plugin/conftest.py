"""Fixtures of the end-to-end tests: a workspace."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Shell, Workspace


@pytest.fixture
def shell(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """An empty folder, and an environment without settings of pytest, as the fixture `pytester` has.

    That fixture forgets modules that a test imports first. Packages written in C cannot be imported again.
    """
    folder = tmp_path_factory.mktemp("workspace")
    for name in ("HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("PYTEST_DEBUG_TEMPROOT", str(tmp_path_factory.mktemp("temporary")))
    monkeypatch.setenv("PY_COLORS", "0")
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.chdir(folder)
    return Shell(folder)


@pytest.fixture
def workspace(request: pytest.FixtureRequest, shell: Shell) -> Workspace:
    """A workspace whose sessions run plain, or under xdist if a mark of `workspaces` says so."""
    return Workspace(shell, getattr(request, "param", []))


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest print the whole lines of its short summary."""
    monkeypatch.setenv("COLUMNS", "200")
