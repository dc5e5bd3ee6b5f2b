"""Fixtures of the end-to-end tests: a workspace, whose commands run plain and under xdist."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Shell, Workspace


@pytest.fixture(params=[pytest.param([], id="plain"), pytest.param(["-n2"], id="-n2", marks=pytest.mark.slow)])
def plugin_args(request: pytest.FixtureRequest) -> list[str]:
    """One process, and two workers of xdist: those are slow, and `make test` leaves them out.

    `PLAIN_AND_XDIST` of `workspaces` runs both in `make test` too.
    """
    args: list[str] = request.param
    return args


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
def workspace(shell: Shell, plugin_args: list[str]) -> Workspace:
    """A workspace whose sessions run plain, and again under xdist."""
    return Workspace(shell, plugin_args)


@pytest.fixture
def plain_workspace(shell: Shell) -> Workspace:
    """A workspace whose sessions run plain, for behaviour that xdist cannot change."""
    return Workspace(shell, [])


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest print the whole lines of its short summary."""
    monkeypatch.setenv("COLUMNS", "200")
