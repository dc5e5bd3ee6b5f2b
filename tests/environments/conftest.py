"""Fixtures of tests with environments: those of the end-to-end tests."""

from __future__ import annotations

from tests.plugin.conftest import plain_workspace, shell, workspace

__all__ = ["plain_workspace", "shell", "workspace"]
