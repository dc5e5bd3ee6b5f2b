"""Fixtures of tests with environments: those of the end-to-end tests."""

from __future__ import annotations

from tests.plugin.conftest import shell, workspace

__all__ = ["shell", "workspace"]
