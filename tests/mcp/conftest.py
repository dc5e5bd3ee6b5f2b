"""Tests of MCP tools, which `make test-mcp` runs: they need fastmcp."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.plugin.conftest import shell, workspace

__all__ = ["shell", "workspace"]

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Iterator[None]:
    if importlib.util.find_spec("fastmcp") is None:
        for item in items:
            if item.path.is_relative_to(HERE):
                item.add_marker(pytest.mark.skip(reason="fastmcp is not installed: see `make test-mcp`"))
    return (yield)
