"""Fixtures of the end-to-end tests: a workspace, whose commands run plain and under xdist."""

from __future__ import annotations

import pytest

from tests.plugin.workspaces import Workspace


@pytest.fixture(params=[pytest.param([], id="plain"), pytest.param(["-n2"], id="-n2", marks=pytest.mark.slow)])
def plugin_args(request: pytest.FixtureRequest) -> list[str]:
    """One process, and two workers of xdist: those are slow, and `make test` leaves them out.

    `PLAIN_AND_XDIST` of `workspaces` runs both in `make test` too.
    """
    args: list[str] = request.param
    return args


@pytest.fixture
def workspace(pytester: pytest.Pytester, plugin_args: list[str]) -> Workspace:
    """A workspace whose commands run in one process, and again under xdist."""
    return Workspace(pytester, plugin_args)


@pytest.fixture
def plain_workspace(pytester: pytest.Pytester) -> Workspace:
    """A workspace whose commands run in one process, for behaviour that xdist cannot change."""
    return Workspace(pytester, [])


@pytest.fixture
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pytest print the whole lines of its short summary."""
    monkeypatch.setenv("COLUMNS", "200")
